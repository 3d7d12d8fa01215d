// @ts-check
/** Requests to the viewer's server. */

import { findToken } from "./token.js";

const NO_TOKEN =
  "this address has no valid token: open the complete address printed by 'agentv view'";

/** The server does not respond, or responds with an error. */
export class RequestError extends Error {}

/**
 * Request a path and return the response. Throw a `RequestError` if it fails.
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function ask(path, options = {}) {
  const token = await findToken();
  if (!token) throw new RequestError(NO_TOKEN);
  const headers = { ...options.headers, "X-Agentv-Token": token };
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options, headers });
  } catch {
    throw new RequestError("the viewer is not running: start it with 'agentv view'");
  }
  if (answer.ok) return answer;
  if (answer.status === 403) throw new RequestError(NO_TOKEN);
  throw new RequestError((await answer.text()).trim());
}

/**
 * Request a path and return the JSON of the response.
 * @param {string} path
 */
export async function askJson(path) {
  const answer = await ask(path);
  return answer.json();
}

/**
 * Post a value and return the JSON of the response.
 * @param {string} path
 * @param {unknown} value
 */
export async function postJson(path, value) {
  const headers = { "Content-Type": "application/json" };
  const answer = await ask(path, { method: "POST", headers, body: JSON.stringify(value) });
  return answer.json();
}
