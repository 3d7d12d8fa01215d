/** Asks the viewer's server. */

/** Thrown when the server says that something is not there. */
export class Refused extends Error {}

/** Returns what the server answers. */
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Refused("the viewer has ended: start it again with 'agentv view'");
  }
  if (!answer.ok) throw new Refused(answer.status === 403 ? "this address is no longer valid: use the one that 'agentv view' has printed" : (await answer.text()).trim());
  return answer;
}

/** Returns what the server answers to a request that may change something. */
export function post(path, value) {
  return ask(path, { method: "POST", headers: { "X-Agentv": "1", "Content-Type": "application/json" }, body: JSON.stringify(value) });
}
