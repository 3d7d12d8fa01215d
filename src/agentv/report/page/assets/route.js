/** What is shown <-> the address: `#case=id&dataset=x&trial=2&q=verdict%3Afail&sort=-score`. */

const KEYS = ["case", "dataset", "target", "trial", "q", "sort"];

export function readRoute() {
  const route = {};
  for (const part of location.hash.slice(1).split("&")) {
    const [key, ...value] = part.split("=");
    if (!KEYS.includes(key)) continue;
    try {
      route[key] = decodeURIComponent(value.join("=").replaceAll("+", "%20"));
    } catch {
      route[key] = value.join("=");
    }
  }
  return route;
}

export function routeHash(route) {
  const parts = KEYS.filter((key) => route[key] !== undefined && route[key] !== "");
  return `#${parts.map((key) => `${key}=${encodeURIComponent(route[key])}`).join("&")}`;
}

/** Shows a route in the address bar; `push` makes a step that Back undoes. */
export function writeRoute(route, push) {
  const hash = routeHash(route);
  if (hash === (location.hash || "#")) return;
  if (push) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

/** Returns the part of a route that names a row; dataset and target only where the id alone does not. */
export function rowRoute(model, row, trial) {
  const id = model.id(row);
  const route = { case: id };
  const others = model.mayShareId(row) ? model.rowsWithId(id) : [];
  if (others.length > 1) {
    route.dataset = model.dataset(row);
    if (others.filter((other) => model.dataset(other) === route.dataset).length > 1) route.target = model.target(row);
  }
  if (trial) route.trial = String(trial);
  return route;
}

/** Returns the row that a route names, -1 if there is none. */
export function routeRow(model, route) {
  if (route.case === undefined) return -1;
  const rows = model.rowsWithId(route.case);
  const fits = (row) => (route.dataset === undefined || model.dataset(row) === route.dataset)
    && (route.target === undefined || model.target(row) === route.target);
  return rows.find(fits) ?? -1;
}
