/** The help: every key, and the filter language. */

import { el } from "./dom.js";

export function helpDialog(compared) {
  const keys = [
    ["j, k", "next and previous case"],
    ["n, p", compared ? "next and previous case that broke" : "next and previous case that did not pass"],
    ["/", "filter"], ["Enter", "open the case in focus"], ["c", "copy the case, or the one in focus, as Markdown"], ["Esc", "back"], ["?", "this help"],
  ];
  const filters = [
    ["paris", "text in id, question or answer"], ['"two words"', "the words as they stand"], ["verdict:fail", "also borderline, pass, error"],
    ["score<0.5", "also >, <=, >=, ="], ["duration>1000", "milliseconds"], ["cost>0.01", "dollars"], ["target:x dataset:x", "a * stands for any text"],
    ["evaluator:name", "what it judged"], ["error:yes", "ended in an error"], ["-verdict:pass", "a minus turns any of these around"],
    ...(compared ? [["flip:broken", "also fixed, no"], ["delta<0", "what got worse"]] : []),
  ];
  const rows = (pairs) => el("dl", { class: "keys" }, pairs.map(([key, text]) => el("div", null, el("dt", null, el("kbd", null, key)), el("dd", null, text))));
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" },
    el("h2", { id: "help-title" }, "Keys"), rows(keys), el("h2", null, "Filter"), rows(filters),
    el("p", { class: "quiet" }, "Terms stand side by side: all must fit. The address bar holds what is shown, so a link to this page shows the same."),
    el("button", { type: "button", on: { click: () => dialog.close() } }, "close"));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return dialog;
}
