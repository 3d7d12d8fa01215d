/** Starts the page of a report, which carries its own data. */

import { App } from "./app.js";
import { el } from "./dom.js";
import { Model } from "./model.js";
import { embeddedSource } from "./source.js";

async function start() {
  const root = document.getElementById("app");
  try {
    const source = embeddedSource();
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old: it cannot unpack the data");
    new App(await Model.load(source), root, "Made by agentv. This file holds all that it shows and fetches nothing.");
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    root.append(el("p", { class: "notice failed" }, `This report cannot be shown: ${error.message}`));
    throw error;
  }
}

start();
