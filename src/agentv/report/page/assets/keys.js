// @ts-check
/** Keyboard shortcuts. `help.js` lists them. */

/** @import { App } from "./app.js" */

import { BROKEN } from "./figures.js";
import { PASS } from "./states.js";

/**
 * Install the keyboard shortcuts of a page.
 * @param {App} app
 */
export function listenForKeys(app) {
  /** @type {Record<string, () => void>} */
  const actions = {
    j: () => app.step(1),
    k: () => app.step(-1),
    n: () => app.step(1, (row) => isMissed(app, row)),
    p: () => app.step(-1, (row) => isMissed(app, row)),
    "/": () => focusFilter(app),
    "?": () => app.help.showModal(),
    c: () => copy(app),
    Escape: () => goBack(app),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || app.help.open) return;
    const target = /** @type {Element} */ (event.target);
    if (target.closest?.("input, textarea, select")) {
      onTypingKey(app, event.key);
      return;
    }
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

/**
 * @param {App} app
 * @param {string} key
 */
function onTypingKey(app, key) {
  if (key === "Escape") app.filter.input.blur();
  if (key === "Enter") app.filter.commit();
}

/**
 * Return whether `n` and `p` stop at a row: one that broke, or one that did not pass.
 * @param {App} app
 * @param {number} row
 */
function isMissed({ model }, row) {
  return model.base ? model.flips[row] === BROKEN : model.state(row) !== PASS;
}

/** @param {App} app */
function focusFilter(app) {
  const isCovered = app.main.inert;
  if (isCovered) app.close();
  app.filter.focus();
}

/** @param {App} app */
function copy(app) {
  if (app.panel.isOpen) app.panel.copy();
  else app.copyFocused();
}

/** @param {App} app */
function goBack(app) {
  if (app.panel.isOpen) app.close();
  else if (app.route.q) app.setQuery("");
}
