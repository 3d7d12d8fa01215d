// @ts-check
/** The panel in which a case is shown, next to the table or on top of it. */

/**
 * @import { CaseActions } from "./case.js"
 * @import { Model } from "./model.js"
 */

import { drawCase } from "./case.js";
import { el, elWith, fill } from "./dom.js";

export class CasePanel {
  /** @param {CaseActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.element = elWith("section.case", { "aria-labelledby": "case-title", hidden: true });
    /** The row of the open case, or -1. */
    this.row = -1;
    /** @type {string | undefined} */
    this.trial = undefined;
    /** Number of the latest request: responses to earlier ones are ignored. */
    this.latest = {};
  }

  get isOpen() {
    return this.row >= 0;
  }

  /**
   * Remember the open case and trial; return whether either has changed.
   * @param {number} row
   * @param {string | undefined} trial
   */
  select(row, trial) {
    if (row === this.row && trial === this.trial) return false;
    this.row = row;
    this.trial = trial;
    return true;
  }

  /**
   * Load the open case and show it.
   * @param {Model} model
   * @param {string} position such as "3 of 40"
   */
  async show(model, position) {
    const current = {};
    this.latest = current;
    const place = { row: this.row, trial: this.trial, position };
    try {
      const content = await drawCase(model, place, this.actions);
      if (this.latest !== current) return; // another case was opened meanwhile
      fill(this.element, content);
      this.element.scrollTop = 0;
    } catch (error) {
      if (this.latest !== current) return;
      const { message } = /** @type {Error} */ (error);
      fill(this.element, el("p.notice.failed", `This case cannot be shown: ${message}`));
    }
  }

  /** Move the focus to the title. */
  focus() {
    this.element.querySelector("h1")?.focus({ preventScroll: true });
  }

  /** Copy the case as Markdown. */
  copy() {
    /** @type {HTMLElement | null} */
    const copyButton = this.element.querySelector('[title^="copy"]');
    copyButton?.click();
  }
}
