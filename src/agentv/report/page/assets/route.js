// @ts-check
/** Converts routes to and from URLs: `#case=id&dataset=x&trial=2&q=verdict%3Afail&sort=-score`. */

/** @import { Model } from "./model.js" */

/**
 * What a page shows. Without `case`, no case is open.
 * @typedef {object} Route
 * @property {string} [case] the id of the case
 * @property {string} [dataset] of the case, if several have the id
 * @property {string} [target] of the case, if several have the id
 * @property {string} [trial]
 * @property {string} [q] the filter
 * @property {string} [sort] the column to sort by, with a minus if the largest comes first
 */

/** @type {(keyof Route)[]} */
const KEYS = ["case", "dataset", "target", "trial", "q", "sort"];

/** A change of a route that closes the case. */
export const NO_CASE = { case: undefined, dataset: undefined, target: undefined, trial: undefined };

/** Return the route in the URL. */
export function readRoute() {
  /** @type {Route} */
  const route = {};
  for (const part of location.hash.slice(1).split("&")) {
    const [name, ...rest] = part.split("=");
    const key = KEYS.find((each) => each === name);
    if (key) route[key] = decode(rest.join("="));
  }
  return route;
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", "%20"));
  } catch {
    return text; // typed by hand, with a percent sign that does not start an escape
  }
}

/**
 * Return the URL fragment for a route.
 * @param {Route} route
 */
export function routeHash(route) {
  const parts = [];
  for (const key of KEYS) {
    const value = route[key];
    if (value) parts.push(`${key}=${encodeURIComponent(value)}`);
  }
  return `#${parts.join("&")}`;
}

/**
 * Show a route in the address bar.
 * @param {Route} route
 * @param {boolean} isStep whether Back returns to what was shown before
 */
export function writeRoute(route, isStep) {
  const hash = routeHash(route);
  if (hash === (location.hash || "#")) return;
  if (isStep) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

/**
 * Return the part of a route that identifies a row: its id, with dataset and target if needed.
 * @param {Model} model
 * @param {number} row
 */
export function rowRoute(model, row) {
  const id = model.id(row);
  /** @type {Route} */
  const route = { case: id };
  if (!model.mayShareId(row)) return route;
  const others = model.rowsWithId(id);
  if (others.length < 2) return route;
  const dataset = model.nameOf(row, "datasets");
  route.dataset = dataset;
  const inDataset = others.filter((other) => model.nameOf(other, "datasets") === dataset);
  if (inDataset.length > 1) route.target = model.nameOf(row, "targets");
  return route;
}

/**
 * Return the row that a route identifies, or -1 if it does not exist.
 * @param {Model} model
 * @param {Route} route
 */
export function routeRow(model, route) {
  if (route.case === undefined) return -1;
  const row = model.rowsWithId(route.case).find((each) => {
    if (route.dataset !== undefined && model.nameOf(each, "datasets") !== route.dataset)
      return false;
    return route.target === undefined || model.nameOf(each, "targets") === route.target;
  });
  return row ?? -1;
}
