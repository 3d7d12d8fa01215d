// @ts-check
/**
 * The labelling page: one answer at a time, without the target's name and without scores.
 *
 * The server determines the order. The page requests the next answer when the label of the current
 * one is on disk. Skipped answers and the undo history exist only on the page.
 */

/**
 * @import { BlindCase, NewLabel, ReviewDefaults, ReviewRequest, ReviewState } from "../contract"
 */

import { askJson, postJson } from "./ask.js";
import { button, decorative, el, elWith, fill, markReady } from "./dom.js";
import { countText, numberText } from "./format.js";
import { reviewForm } from "./reviewform.js";
import { answerParts } from "./reviewparts.js";
import { longText, proseBlocks } from "./texts.js";

/**
 * The settings of a reviewer.
 * @typedef {object} ReviewChoice
 * @property {string} reviewer
 * @property {ReviewRequest["only"]} only
 * @property {number | null} share
 * @property {boolean} keys whether keys label
 */

/**
 * A label, or a skip, that can be undone.
 * @typedef {object} Step
 * @property {number} place
 * @property {NewLabel["label"] | ""} label empty for a skip
 * @property {string} note
 */

/** Answers up to this length are never clipped: a reviewer reads all of them. */
const WHOLE_CHARACTERS = 50_000;
const MAX_NOTE = 4000;
const KEYS = ["1 pass", "2 fail", "s skip", "u undo", "n note"];

class ReviewPage {
  /**
   * @param {HTMLElement} root
   * @param {string | null} run the id of a run; without one, the server decides
   */
  constructor(root, run) {
    this.run = run;
    /** @type {ReviewState | null} */
    this.review = null;
    /** @type {number | null} the place of the answer that is shown, null at the end */
    this.place = null;
    this.isShown = false;
    this.isBusy = false;
    /** The first position that was not shown yet. */
    this.fresh = 0;
    /** @type {number[]} places that come before the fresh ones */
    this.ahead = [];
    /** @type {Step[]} */
    this.history = [];
    /** @type {Set<number>} */
    this.skipped = new Set();
    /** @type {number[] | null} the results that were chosen on the page of the run */
    this.chosen = run ? storedJson(`review-chosen ${run}`) : null;
    /** @type {ReviewChoice} */
    this.choice = { reviewer: "", only: "all", share: null, keys: false };
    this.storageKey = "";
    this.progress = elWith("p.review-progress", { role: "status" });
    this.bar = elWith("progress", { "aria-label": "answers with a label", max: 1, value: 0 });
    this.summary = el("summary", "Settings");
    this.settings = el("details.review-settings", this.summary);
    this.notice = elWith("div.review-notice", { role: "alert" });
    this.title = elWith("h2", { tabindex: "-1", id: "review-title" });
    this.texts = el("div.review-texts");
    this.note = elWith("textarea", {
      id: "note",
      rows: "1",
      maxlength: MAX_NOTE,
      placeholder: "note (optional)",
      on: { keydown: (/** @type {KeyboardEvent} */ event) => this.#onNoteKey(event) },
    });
    this.buttons = [
      keyButton("1", "✓ Pass", "pass", () => this.#label("pass")),
      keyButton("2", "✗ Fail", "fail", () => this.#label("fail")),
      keyButton("s", "Skip", "skip", () => this.#skip()),
    ];
    this.undoButton = keyButton("u", "Undo", "undo", () => this.#undo());
    this.tools = this.#drawTools();
    this.labels = el("span");
    this.main = this.#drawMain();
    fill(root, this.main, this.#drawFooter());
    this.#update();
    addEventListener("keydown", (event) => this.#onKey(event));
  }

  #drawTools() {
    return elWith(
      "section.review-tools",
      { "aria-label": "your label" },
      elWith("label", { for: "note", class: "sr" }, "note"),
      this.note,
      el("div.review-buttons", this.buttons, this.undoButton),
    );
  }

  #drawMain() {
    const head = el(
      "header.review-head",
      el("h1", "Review"),
      this.progress,
      this.bar,
      this.settings,
    );
    const article = elWith(
      "article",
      { "aria-labelledby": "review-title" },
      this.title,
      this.texts,
    );
    return el("main.review", head, this.notice, article, this.tools);
  }

  #drawFooter() {
    const keys = KEYS.map((each, at) => {
      const [key, word] = each.split(" ");
      const isLast = at === KEYS.length - 1;
      return [el("kbd", key), ` ${word}${isLast ? "." : ", "}`];
    });
    const text = "Each label is saved before the next answer is shown. Keys: ";
    return el("footer", this.labels, text, keys);
  }

  // settings

  /** Begin a review with the settings of the server and those stored by an earlier review. */
  async start() {
    await this.#work(async () => {
      /** @type {ReviewDefaults} */
      const { labels, ...defaults } = await askJson("/api/review");
      this.labels.textContent = `Labels are saved to ${labels}. `;
      // the key contains the defaults: another viewer on the same port may have different ones
      this.storageKey = `review-settings ${JSON.stringify(defaults)}`;
      this.choice = { keys: true, ...defaults, ...storedJson(this.storageKey) };
      if (this.chosen) this.choice.only = "chosen";
      else if (this.choice.only === "chosen") this.choice.only = defaults.only;
      const form = reviewForm(this.choice, this.chosen, (choice) => this.#onChoice(choice));
      fill(this.settings, this.summary, form);
      await this.#begin();
    });
    markReady();
  }

  /** @param {ReviewChoice} choice */
  async #onChoice(choice) {
    if (this.isBusy) return;
    this.choice = choice;
    sessionStorage.setItem(this.storageKey, JSON.stringify(choice));
    this.settings.open = false;
    await this.#work(() => this.#begin());
  }

  /** Request a new sample of answers from the server. */
  async #begin() {
    const { reviewer, only, share } = this.choice;
    this.review = null;
    this.place = null;
    this.isShown = false;
    this.fresh = 0;
    this.ahead = [];
    this.history = [];
    this.skipped = new Set();
    fill(this.texts);
    this.title.textContent = "Reading results …";
    const results = only === "chosen" && this.chosen ? this.chosen : [];
    /** @type {ReviewRequest} */
    const request = { run: this.run, reviewer, only, share, results };
    /** @type {ReviewState} */
    const review = await postJson("/api/review", request);
    this.review = review;
    const sampling = review.sampling === "random" ? "random sample" : "selected answers";
    this.summary.textContent = `${reviewer || "no name"} · ${sampling}`;
    await this.#show(this.#next());
  }

  // one answer at a time

  /** Return the position of the answer to show next, or null at the end. */
  #next() {
    const ahead = this.ahead.shift();
    if (ahead !== undefined) return ahead;
    if (!this.review || this.fresh >= this.review.count) return null;
    const place = this.fresh;
    this.fresh++;
    return place;
  }

  /**
   * Show the answer at a position, or the end of the review.
   * @param {number | null} place
   */
  async #show(place, note = "") {
    this.place = place;
    this.isShown = false;
    this.note.value = note;
    fill(this.texts);
    this.title.textContent = place === null ? this.#ending() : `Case ${numberText(place + 1)}`;
    this.#update();
    if (place !== null) await this.#showAnswer(place);
    else if (this.skipped.size > 0) fill(this.texts, this.#skippedButton());
    const isFocusFree = document.activeElement === document.body;
    if (this.history.length > 0 || isFocusFree) this.title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  /** @param {number} place */
  async #showAnswer(place) {
    /** @type {BlindCase} */
    const shown = await askJson(`/api/review/${this.review?.id}/${place}`);
    fill(
      this.texts,
      section("Question", shown.question, "the question is not in the results"),
      section("Answer", shown.answer, "", "answer"),
      shown.expected_outcome !== null && section("Expected outcome", shown.expected_outcome),
      shown.reference_answer !== null && section("Reference answer", shown.reference_answer),
      answerParts(shown),
    );
    this.isShown = true;
  }

  #ending() {
    const hasNone = this.#doneCount() === 0 && this.review?.count === 0;
    if (hasNone) {
      return this.review?.labelled
        ? "You have labelled all of these answers"
        : "No answers to label";
    }
    return this.skipped.size > 0 ? "No more answers" : "Done: you labelled every answer";
  }

  /** Return how many answers were labelled in this review. */
  #doneCount() {
    return this.history.filter(({ label }) => label).length;
  }

  /** @param {NewLabel["label"]} label */
  #label(label) {
    this.#act(async () => {
      const place = /** @type {number} */ (this.place);
      const note = this.note.value;
      await this.#postLabel(place, { label, note });
      this.history.push({ place, label, note });
      this.skipped.delete(place);
      await this.#show(this.#next());
    }, "The label was not saved");
  }

  /**
   * @param {number} place
   * @param {NewLabel} request
   */
  async #postLabel(place, request) {
    await postJson(`/api/review/${this.review?.id}/${place}`, request);
  }

  #skip() {
    this.#act(async () => {
      const place = /** @type {number} */ (this.place);
      this.history.push({ place, label: "", note: this.note.value });
      this.skipped.add(place);
      await this.#show(this.#next());
    });
  }

  /** Undo the last label, or the last skip, and show that answer again. */
  #undo() {
    const last = this.history.at(-1);
    if (!last || this.isBusy) return;
    this.#work(async () => {
      if (last.label) await this.#postLabel(last.place, { label: "retracted", note: "" });
      this.history.pop();
      this.skipped.delete(last.place);
      const waiting = this.place === null ? this.ahead : [this.place, ...this.ahead];
      this.ahead = waiting.filter((place) => place !== last.place);
      await this.#show(last.place, last.note);
    }, "The label was not retracted");
  }

  #skippedButton() {
    const showSkipped = () => {
      this.ahead = [...this.skipped];
      this.skipped.clear();
      this.#work(() => this.#show(this.#next()));
    };
    const label = `Show the ${this.skipped.size} skipped answers again`;
    return button("again", showSkipped, label);
  }

  // one action at a time

  /**
   * Run an action on the current answer, if there is one.
   * @param {() => Promise<void>} task
   * @param {string} [failure]
   */
  #act(task, failure) {
    if (this.isShown && !this.isBusy) this.#work(task, failure);
  }

  /**
   * Run an action. If it fails, show the error.
   * @param {() => Promise<void>} task
   * @param {string} [failure] what it means if the task fails
   */
  async #work(task, failure = "") {
    this.isBusy = true;
    fill(this.notice);
    this.#update();
    try {
      await task();
    } catch (error) {
      this.#reportFailure(failure, /** @type {Error} */ (error));
    } finally {
      this.isBusy = false;
      this.#update();
    }
  }

  /**
   * @param {string} failure
   * @param {Error} error
   */
  #reportFailure(failure, error) {
    if (!this.review) this.title.textContent = "The review cannot start";
    const staysHere = this.isShown && failure !== "";
    const canRetry = !this.review || (this.place !== null && !this.isShown);
    const retry = () => {
      this.#work(() => (this.review ? this.#show(this.place) : this.#begin()));
    };
    const text = staysHere ? `${failure}: ${error.message}.` : `${error.message}.`;
    const notice = el(
      "p.notice.failed",
      text,
      staysHere && " Fix the problem, then try again.",
      canRetry && [" ", button("plain", retry, "Try again")],
    );
    fill(this.notice, notice);
  }

  /** Update the buttons and the number of labelled answers. */
  #update() {
    const { review } = this;
    for (const each of this.buttons) each.disabled = this.isBusy || !this.isShown;
    this.undoButton.disabled = this.isBusy || this.history.length === 0;
    this.main.ariaBusy = String(this.isBusy);
    this.tools.hidden = !review;
    this.bar.hidden = !review;
    if (!review) {
      this.progress.textContent = "";
      return;
    }
    const done = review.labelled + this.#doneCount();
    const all = review.labelled + review.count;
    const skipped = this.skipped.size > 0 ? `, ${numberText(this.skipped.size)} skipped` : "";
    this.progress.textContent = `${numberText(done)} of ${numberText(all)}${skipped}`;
    this.bar.max = Math.max(1, all);
    this.bar.value = done;
  }

  // keys

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const target = /** @type {Element} */ (event.target);
    const isTyping = target.closest?.("input, textarea, select, [contenteditable]");
    const isForBrowser = event.ctrlKey || event.metaKey || event.altKey;
    if (isTyping || isForBrowser || event.repeat || event.defaultPrevented) return;
    if (!this.choice.keys) return;
    /** @type {Record<string, () => void>} */
    const actions = {
      1: () => this.#label("pass"),
      2: () => this.#label("fail"),
      s: () => this.#skip(),
      u: () => this.#undo(),
      n: () => this.note.focus(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** @param {KeyboardEvent} event */
  #onNoteKey(event) {
    if (event.key === "Escape") this.title.focus({ preventScroll: true });
  }
}

/**
 * Return a button that shows its key. The second click of a double click is ignored: it would label
 * the next answer, which the reviewer has not read.
 * @param {string} key
 * @param {string} text
 * @param {string} className
 * @param {() => void} act
 */
function keyButton(key, text, className, act) {
  /** @param {MouseEvent} event */
  const onClick = (event) => {
    if (event.detail < 2) act();
  };
  const hint = decorative("kbd", key);
  return button({ class: className, "aria-keyshortcuts": key }, onClick, text, " ", hint);
}

/**
 * Return a section of a case. If the text is missing, it shows `absent`.
 * @param {string} title
 * @param {string | null} text
 * @param {string} [absent]
 */
function section(title, text, absent = "", className = "") {
  const content = text === null ? quietText(absent) : fullText(text);
  return elWith("section", { class: className }, el("h3", title), content);
}

/** @param {string} text */
function fullText(text) {
  if (text.trim() === "") return quietText("(empty)");
  if (text.length > WHOLE_CHARACTERS) return longText(text);
  return el("div.text", proseBlocks(text));
}

/** @param {string} text */
function quietText(text) {
  return el("p.quiet", text);
}

/**
 * Return a stored value, or null.
 * @param {string} key
 */
function storedJson(key) {
  return JSON.parse(sessionStorage.getItem(key) ?? "null");
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
const run = location.pathname.split("/")[2] ?? null;
new ReviewPage(root, run).start();
