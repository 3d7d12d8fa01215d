// @ts-check
/** The settings of a review: the reviewer and the answers to label. */

/** @import { ReviewChoice } from "./review.js" */

import { el, elWith } from "./dom.js";
import { countText } from "./format.js";

const MAX_NAME = 100;

/**
 * Values and texts of a choice.
 * @typedef {[string, string][]} Options
 */

/** @type {Options} */
const SELECTIONS = [
  ["all", "all, in random order"],
  ["failed", "only those that did not pass (not a random sample)"],
];

/** @type {Options} */
const SHARES = [
  ["", "mixed with the others"],
  ["0.1", "first, 10% of them"],
  ["0.2", "first, 20% of them"],
  ["0.5", "first, 50% of them"],
  ["1", "first, all of them"],
  ["0", "not shown"],
];

/**
 * Return a form with the settings.
 * @param {ReviewChoice} choice
 * @param {number[] | null} chosen the results that were chosen on the page of the run
 * @param {(choice: ReviewChoice) => void} onSubmit
 */
export function reviewForm(choice, chosen, onSubmit) {
  const name = elWith("input", {
    name: "reviewer",
    value: choice.reviewer,
    maxlength: MAX_NAME,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "no name",
  });
  const share = choice.share === null ? "" : String(choice.share);
  const selections = select("only", selectionOptions(chosen), choice.only);
  const shares = select("share", shareOptions(choice.share), share);
  const keys = elWith("input", { type: "checkbox", name: "keys", checked: choice.keys });
  const form = el(
    "form",
    el("label", "Your name", name),
    el("label", "Answers", selections),
    el("label", "Answers labelled by others", shares),
    el("label.check", keys, "Keys 1, 2, s, u, n"),
    elWith("button", { type: "submit" }, "Start"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onSubmit({
      reviewer: name.value.trim(),
      only: /** @type {ReviewChoice["only"]} */ (selections.value),
      share: shares.value === "" ? null : Number(shares.value),
      keys: keys.checked,
    });
  });
  return form;
}

/** @param {number[] | null} chosen */
function selectionOptions(chosen) {
  if (!chosen) return SELECTIONS;
  const count = countText(chosen.length, "result");
  const text = `the ${count} selected (not a random sample)`;
  return /** @type {Options} */ ([...SELECTIONS, ["chosen", text]]);
}

/** @param {number | null} share */
function shareOptions(share) {
  if (share === null || SHARES.some(([value]) => value === String(share))) return SHARES;
  const text = `first, ${Math.round(share * 100)}% of them`;
  return /** @type {Options} */ ([...SHARES, [String(share), text]]);
}

/**
 * @param {string} name
 * @param {Options} options
 * @param {string} current
 */
function select(name, options, current) {
  const elements = options.map(([value, text]) => {
    return elWith("option", { value, selected: value === current }, text);
  });
  return elWith("select", { name }, elements);
}
