/** Starts the page of the viewer that the address stands for: the list, one run, or two. */

import { App } from "./app.js";
import { post } from "./ask.js";
import { el, fill } from "./dom.js";
import { countText } from "./format.js";
import { LiveRun, modelOf } from "./live.js";
import { BROKEN, FIXED } from "./model.js";
import { RowTable } from "./rows.js";
import { RunsPage } from "./runs.js";
import { caseSums } from "./sums.js";

const POLL = 1000, POLL_DONE = 3000, POLL_HIDDEN = 8000;
const UPDATE_SHARE = 6, FRAME_WAIT = 500;
const MOST_CHOSEN = 200_000;
const FOOTER = "Served by agentv to this machine only.";

/** The page of one run, or of two, which may still grow. */
class LivePage {
  constructor(ids, root) {
    this.root = root;
    this.table = new RowTable();
    this.runs = ids.map((id, number) => new LiveRun(id, number, this.table, ids.length > 1));
    this.line = el("p", { class: "live-line", role: "status" });
    this.notices = el("div", { class: "notices" });
    this.review = el("a", { class: "review-link", href: `/review/${ids[0]}`, hidden: ids.length > 1, on: { click: () => this.chooseForReview() } }, "Review answers");
    document.querySelector(".crumbs").append(this.line, this.review);
    root.before(this.notices);
    this.nextUpdate = 0;
  }

  /** Reads, shows, waits, again and again. */
  async follow() {
    for (;;) {
      try {
        await Promise.all(this.runs.map((run) => run.fetch()));
        this.failure = "";
        if (this.isDue()) await this.show();
      } catch (error) {
        this.failure = error.message;
        if (!(error instanceof Error) || error.name === "TypeError" || error.name === "RangeError") console.error(error);
      }
      this.tell();
      document.documentElement.dataset.ready = "yes";
      await new Promise((resolve) => setTimeout(resolve, this.wait()));
    }
  }

  get isBehind() {
    return this.runs.some((run) => run.state.is_behind);
  }

  get isRunning() {
    return this.runs.some((run) => run.state.status === "running");
  }

  wait() {
    if (!this.failure && this.isBehind) return 0;
    return document.hidden ? POLL_HIDDEN : this.isRunning ? POLL : POLL_DONE;
  }

  /** Tells whether it is time to show what has come: drawing must not take more time than reading. */
  isDue() {
    if (this.runs.some((run) => !run.count)) return false;
    if (this.runs.length > 1) return !this.isBehind && !this.app;
    const [run] = this.runs;
    if (this.app && run.state.status !== this.shownStatus) return true; // what its record says has changed
    return run.hasChanged && (!this.isBehind || performance.now() >= this.nextUpdate);
  }

  async show() {
    const start = performance.now();
    this.shownStatus = this.runs[0].state.status;
    const changed = new Uint8Array(this.table.count);
    this.runs.forEach((run) => run.takeChanged(changed));
    const runs = this.runs.map((run) => run.run({ ...run.state }));
    const bare = modelOf(runs, this.table, { runs: [] });
    const meta = await this.describe(bare);
    runs.forEach((run, number) => { run.meta = { ...run.meta, ...meta.runs[number] }; });
    const model = modelOf(runs, this.table, meta);
    if (this.app) this.app.update(model, changed, this.wasBehind && this.app.isUntouched);
    else this.app = new App(model, this.root, FOOTER);
    this.wasBehind = this.isBehind;
    this.shown = this.runs.map((run) => run.count);
    await drawn();
    this.nextUpdate = performance.now() + UPDATE_SHARE * (performance.now() - start);
  }

  /** Tells the page for labels which results are to be reviewed, if a filter selects some; else it draws from all. */
  chooseForReview() {
    const { app, runs: [{ id }] } = this, { model } = app ?? {};
    sessionStorage.removeItem(`review-chosen ${id}`);
    if (!app || app.view.length === model.count) return;
    const results = [...app.view].flatMap((row) => [...model.run.resultsOf(row)]);
    sessionStorage.setItem(`review-chosen ${id}`, JSON.stringify(results.slice(0, MOST_CHOSEN)));
  }

  /** Asks for the words and intervals of what was added up here. */
  async describe(model) {
    const flips = model.base ? [FIXED, BROKEN].map((kind) => model.flips.reduce((sum, flip) => sum + (flip === kind), 0)) : [0, 0];
    const runs = model.runs.map((run, number) => ({ run: this.runs[number].id, sums: caseSums(run) }));
    return (await post("/api/describe", { runs, flips })).json();
  }

  /** Says what goes on, in a line, and what is wrong, in a notice. */
  tell() {
    this.line.className = `live-line${this.isRunning ? " running" : ""}`;
    const text = this.progress();
    if (this.line.textContent !== text) this.line.textContent = text;
    const { view, model } = this.app ?? {};
    this.review.textContent = view && view.length < model.count ? `Review these ${countText(view.length, "case")}` : "Review answers";
    const notices = this.problems();
    const key = JSON.stringify(notices.map(({ text: each, action }) => [each, action?.[0]]));
    if (key === this.told) return;
    this.told = key;
    fill(this.notices, notices.map(({ text: each, action, failed }) => el("p", { class: `notice${failed ? " failed" : ""}`, role: failed ? "alert" : "status" }, each, action && [" ", el("button", { type: "button", class: "plain", on: { click: action[1] } }, action[0])])));
  }

  progress() {
    const size = this.runs.reduce((sum, run) => sum + run.state.size, 0), read = this.runs.reduce((sum, run) => sum + run.state.read, 0);
    const results = countText(this.runs.reduce((sum, run) => sum + run.count, 0), "result");
    if (this.isBehind) return `reading: ${Math.floor((100 * read) / Math.max(1, size))}% of ${Math.round(size / 1e6).toLocaleString("en")} MB, ${results} so far`;
    if (this.isRunning) return `● in progress, ${results}`;
    const ended = this.runs.map((run) => run.state.status).find((status) => status === "killed" || status === "interrupted");
    return ended ? `this run was ${ended}` : "";
  }

  problems() {
    const reload = ["Show what is there now", () => location.reload()];
    const found = this.runs.flatMap(({ state, count }) => [
      state.gone && { text: `${capital(state.gone)}. ${count ? "What you see is what was read of it." : ""}`, failed: true },
      state.change && !state.gone && { text: `The results file was ${state.change} while you looked at it. What you see is what it was before.`, action: reload, failed: true },
      !state.gone && !state.change && state.torn && state.status !== "running" && { text: `${capital(state.torn.message)}. ${capital(state.torn.hint)}.` },
      state.bad > 0 && { text: `${countText(state.bad, "record")} of this file ${state.bad === 1 ? "is no result and is" : "are no results and are"} left out: ${state.problems.join("; ")}`, failed: count === 0 },
      !count && !state.gone && !state.is_behind && !state.bad && this.runs.length === 1 && { text: state.status === "running" ? "The run has no results yet: they appear here as they come." : "There are no results in this file." },
      !count && !state.gone && !state.is_behind && this.runs.length > 1 && { text: "One of the files has no results: there is nothing to compare." },
    ].filter(Boolean));
    if (this.failure) found.push({ text: `${capital(this.failure)}.`, failed: true });
    if (this.app && this.runs.length > 1 && this.runs.some((run, number) => run.count > this.shown[number])) found.push({ text: "New results have come since these runs were compared.", action: ["Compare again", () => location.reload()] });
    return found;
  }
}

/** Waits until the browser has drawn; a page that nobody sees is not drawn at all. */
function drawn() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, FRAME_WAIT);
  });
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function start() {
  const root = document.getElementById("app"), { page } = document.documentElement.dataset;
  if (page === "runs") return new RunsPage(root).follow();
  return new LivePage(location.pathname.split("/").slice(2), root).follow();
}

start();
