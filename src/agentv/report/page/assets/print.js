// @ts-check
/** The printed list of cases. It replaces the table, which contains only the visible rows. */

/**
 * @import { Child } from "./dom.js"
 * @import { Model } from "./model.js"
 */

import { el } from "./dom.js";
import { FIXED } from "./figures.js";
import { scoreText } from "./format.js";
import { stateMark } from "./marks.js";
import { PASS } from "./states.js";

const PRINTED_ROWS = 300;

/**
 * Return the cases that did not pass; in a comparison, those that flipped.
 * @param {Model} model
 * @returns {Child[]}
 */
export function printedCases(model) {
  const isComparison = model.base !== null;
  const title = isComparison ? "Cases that flipped" : "Cases that did not pass";
  /** @param {number} row */
  const isPrinted = (row) => (isComparison ? model.flips[row] <= FIXED : model.state(row) !== PASS);
  const rows = model.order("worst", false).filter(isPrinted);
  const lines = [...rows.subarray(0, PRINTED_ROWS)].map((row) => {
    return el(
      "tr",
      el("td", stateMark(model.state(row))),
      el("td", model.id(row)),
      el("td", scoreText(model.score(row))),
    );
  });
  const others = rows.length - PRINTED_ROWS;
  return [el("h2", title), el("table", lines), others > 0 && el("p", `and ${others} more`)];
}
