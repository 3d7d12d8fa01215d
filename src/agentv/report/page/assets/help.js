// @ts-check
/** The help dialog: keyboard shortcuts and the filter language. */

import { button, definitions, el, elWith } from "./dom.js";

/** @type {[string, string][]} */
const FILTERS = [
  ["paris", "text in id, question or answer"],
  ['"two words"', "the exact phrase"],
  ["verdict:fail", "also borderline, pass, error"],
  ["score<0.5", "also >, <=, >=, :"],
  ["tag:smoke", "has this tag"],
  ["id:ask* target:x dataset:x", "* matches any text, ? any character"],
  ["metadata.team:billing", "a key, or a path such as metadata.customer.country"],
  ["vars.amount>=100", "a variable"],
  ["evaluator:style", "has this evaluator"],
  ["evaluator.style:fail", "its verdict"],
  ["evaluator.style<0.5", "its score"],
  ["error:yes note:yes", "ended in an error, has a note"],
  ["duration>1000", "milliseconds"],
  ["cost>0.01", "dollars"],
  ["-tag:smoke", "a minus negates a term"],
  ['tag:"two words"', "a value with spaces"],
];

/** @type {[string, string][]} */
const COMPARISON_FILTERS = [
  ["flip:broken", "also fixed, errored, no"],
  ["delta<0", "score decreased"],
];

const ABOUT_FILTERS =
  "Separate terms with spaces: a case must match all of them. Values are case-sensitive; text searches are not. Commands accept the same filters as --filter. The filter is part of the URL, so you can share a link to this view.";

/**
 * Return the dialog with the help.
 * @param {boolean} isComparison
 */
export function helpDialog(isComparison) {
  const missed = isComparison ? "that broke" : "that did not pass";
  /** @type {[string, string][]} */
  const keys = [
    ["j, k", "next and previous case"],
    ["n, p", `next and previous case ${missed}`],
    ["/", "filter"],
    ["Enter", "open the case in focus"],
    ["c", "copy the open or focused case as Markdown"],
    ["Esc", "back"],
    ["?", "this help"],
  ];
  const filters = isComparison ? [...FILTERS, ...COMPARISON_FILTERS] : FILTERS;
  const dialog = elWith(
    "dialog.help",
    { "aria-labelledby": "help-title" },
    elWith("h2", { id: "help-title" }, "Keys"),
    explained(keys),
    el("h2", "Filter"),
    explained(filters),
    el("p.quiet", ABOUT_FILTERS),
    button({}, () => dialog.close(), "close"),
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // a click outside the content
  });
  return dialog;
}

/** @param {[string, string][]} pairs */
function explained(pairs) {
  return el("dl.keys", definitions(pairs.map(([key, text]) => [el("kbd", key), text])));
}
