// @ts-check
/** Starts the page that the URL describes: the list of runs, one run, or a comparison. */

import { LivePage } from "./livepage.js";
import { RunsPage } from "./runs.js";

function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("app"));
  const isList = document.documentElement.dataset.page === "runs";
  const ids = location.pathname.split("/").slice(2);
  const page = isList ? new RunsPage(root) : new LivePage(ids, root);
  page.follow();
}

start();
