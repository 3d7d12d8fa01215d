// @ts-check
/** Starts the page of a report, which contains its data. */

import { App } from "./app.js";
import { el, markReady } from "./dom.js";
import { loadModel } from "./model.js";
import { embeddedBlock, embeddedMeta } from "./source.js";

const FOOTER = "Made by agentv. This file is self-contained and loads nothing from the network.";

async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("app"));
  try {
    const meta = embeddedMeta();
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser is too old to decompress the data");
    }
    new App(await loadModel(meta, embeddedBlock), root, FOOTER);
    markReady();
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    root.append(el("p.notice.failed", `This report cannot be shown: ${message}`));
    throw error;
  }
}

start();
