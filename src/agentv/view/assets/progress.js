// @ts-check
/** Describes the progress and the problems of reading results files. */

/** @import { LiveRun } from "./live.js" */

import { countText, numberText } from "./format.js";

/**
 * @typedef {object} Notice
 * @property {string} text
 * @property {boolean} isFailure
 * @property {string} [reload] the label of a button that reads the files again
 */

/**
 * Return the reading progress, or the status of the run once everything is read.
 * @param {LiveRun[]} runs
 */
export function progressText(runs) {
  const states = runs.map((run) => run.state);
  const results = countText(sum(runs.map((run) => run.count)), "result");
  if (states.some((state) => state.is_behind)) {
    const size = sum(states.map((state) => state.size));
    const read = sum(states.map((state) => state.read));
    const percent = Math.floor((100 * read) / Math.max(1, size));
    const megabytes = numberText(Math.round(size / 1e6));
    return `reading: ${percent}% of ${megabytes} MB, ${results} so far`;
  }
  const statuses = states.map((state) => state.status);
  if (statuses.includes("running")) return `● in progress, ${results}`;
  const ended = statuses.find((status) => status === "killed" || status === "interrupted");
  return ended ? `this run was ${ended}` : "";
}

/**
 * Return the problems with the files.
 * @param {LiveRun[]} runs
 */
export function findNotices(runs) {
  return runs.flatMap((run) => fileNotices(run, runs.length > 1));
}

/**
 * @param {LiveRun} run
 * @param {boolean} isCompared
 */
function fileNotices({ state, count }, isCompared) {
  /** @type {Notice[]} */
  const notices = [];
  const add = (text = "", isFailure = false, reload = "") => {
    notices.push({ text, isFailure, reload });
  };
  if (state.gone) {
    const rest = count > 0 ? "This page shows the part that was read." : "";
    add(`${sentence(state.gone)} ${rest}`, true);
  } else if (state.change) {
    const text = `The results file was ${state.change} while this page was open. The page shows its earlier content.`;
    add(text, true, "Reload");
  } else if (state.truncated && state.status !== "running") {
    add(`${sentence(state.truncated.message)} ${sentence(state.truncated.hint)}`);
  }
  if (state.bad > 0) {
    const verb = state.bad === 1 ? "is not a result and was" : "are not results and were";
    const records = `${countText(state.bad, "record")} of this file ${verb} skipped`;
    add(`${records}: ${state.problems.join("; ")}`, count === 0);
  }
  const wasRead = state.generation > 0 && !state.is_behind;
  const isEmpty = count === 0 && !state.gone && wasRead;
  if (isEmpty && isCompared) {
    add("Nothing to compare: one of the files has no results.");
  } else if (isEmpty && state.bad === 0) {
    const isRunning = state.status === "running";
    add(
      isRunning
        ? "No results yet. They appear here as cases finish."
        : "This file contains no results.",
    );
  }
  return notices;
}

/**
 * Return a message as a sentence: with a capital letter and a full stop.
 * @param {string} text
 */
export function sentence(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
