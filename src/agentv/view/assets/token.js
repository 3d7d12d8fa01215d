// @ts-check
/**
 * The token of the viewer, sent in a header of each request for data.
 *
 * The printed URL contains it in the fragment, which browsers never send to a server. It is kept in
 * the storage of this tab, which only pages of this host and port can read; a cookie would be sent to
 * all ports of this machine. A new tab asks the other tabs of the viewer for it.
 */

const KEY = "agentv-token";
const PREFIX = "token=";
/** How long to wait for another tab, in milliseconds. */
const ANSWER_MILLISECONDS = 1000;

const tabs = new BroadcastChannel(KEY);

/** Move the token from the URL to the storage; return whether there was one. */
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
 * Return the token of another tab of this viewer, or an empty string.
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

/** Return the token, or an empty string if it is unknown. */
export async function findToken() {
  return sessionStorage.getItem(KEY) ?? askTabs();
}

takeFromAddress();
tabs.addEventListener("message", ({ data }) => {
  const token = sessionStorage.getItem(KEY);
  if (!data.token && token) tabs.postMessage({ token });
});
// opening a URL with another token in this tab changes only the fragment: the page does not reload
addEventListener("hashchange", () => {
  if (takeFromAddress()) location.reload();
});
