// @ts-check
/**
 * The token of the viewer, which each request for data carries in a header.
 *
 * The printed URL has it in the fragment, which browsers never send to a server. It is kept in the
 * storage of this tab, which only pages of this host and port can read; a cookie would be sent to all
 * ports of this machine. A new tab asks the other tabs of the viewer for it.
 */

const KEY = "agentv-token";
const PREFIX = "token=";
/** How long to wait for another tab, in milliseconds. */
const ANSWER_MILLISECONDS = 1000;

const tabs = new BroadcastChannel(KEY);

/** Move the token from the address to the storage; return whether there was one. */
function takeFromAddress() {
  const parts = location.hash.slice(1).split("&");
  const found = parts.find((part) => part.startsWith(PREFIX));
  if (found === undefined) return false;
  sessionStorage.setItem(KEY, found.slice(PREFIX.length));
  const rest = parts.filter((part) => part !== found).join("&");
  history.replaceState(null, "", `${location.pathname}${location.search}${rest ? `#${rest}` : ""}`);
  return true;
}

/**
 * Return the token that another tab of this viewer has; an empty text if there is none.
 * @returns {Promise<string>}
 */
function askTabs() {
  return new Promise((resolve) => {
    tabs.addEventListener("message", ({ data }) => {
      if (!data.token) return;
      sessionStorage.setItem(KEY, data.token);
      resolve(data.token);
    });
    tabs.postMessage({ token: "" });
    setTimeout(() => resolve(""), ANSWER_MILLISECONDS);
  });
}

/** Return the token; an empty text if it is unknown. */
export async function findToken() {
  return sessionStorage.getItem(KEY) ?? askTabs();
}

takeFromAddress();
tabs.addEventListener("message", ({ data }) => {
  const token = sessionStorage.getItem(KEY);
  if (!data.token && token) tabs.postMessage({ token });
});
// an address with another token, opened in this tab, does not load the page again by itself
addEventListener("hashchange", () => {
  if (takeFromAddress()) location.reload();
});
