/**
 * The page for labels: one answer after the other, and nothing that tells who gave it or what anybody made of it.
 *
 * The server has drawn the order; the page asks for one place of it at a time, and for the next when it has heard that
 * the label is on disk. What was skipped, and what can be taken back, is known to this page only.
 */

import { ask, post } from "./ask.js";
import { el, fill } from "./dom.js";
import { countText } from "./format.js";
import { longText, proseBlocks } from "./texts.js";

const WHOLE = 50_000, MAX_NAME = 100, MAX_NOTE = 4000;
const SHARES = [["", "come as any other"], ["0.1", "come first, a tenth of them"], ["0.2", "come first, a fifth of them"], ["0.5", "come first, half of them"], ["1", "come first, all of them"], ["0", "do not come"]];
const DONE = { pass: "✓ Pass", fail: "✗ Fail" };

class ReviewPage {
  constructor(root, run) {
    Object.assign(this, { root, run, review: null, place: null, isShown: false, isBusy: false });
    this.chosen = run && JSON.parse(sessionStorage.getItem(`review-chosen ${run}`) ?? "null");
    this.build();
    addEventListener("keydown", (event) => this.onKey(event));
  }

  build() {
    this.progress = el("p", { class: "review-progress", role: "status" });
    this.bar = el("progress", { "aria-label": "answers with a label", max: 1, value: 0 });
    this.summary = el("summary", null, "Settings");
    this.settings = el("details", { class: "review-settings" }, this.summary);
    this.notice = el("div", { class: "review-notice", role: "alert" });
    this.title = el("h2", { tabindex: "-1", id: "review-title" });
    this.texts = el("div", { class: "review-texts" });
    this.article = el("article", { "aria-labelledby": "review-title" }, this.title, this.texts);
    this.note = el("textarea", { id: "note", rows: "1", maxlength: MAX_NOTE, placeholder: "note (optional)", on: { keydown: (event) => this.onNoteKey(event) } });
    // the second click of a double click would be for the next answer, which nobody has read
    const button = (key, text, name, act) => el("button", { type: "button", class: name, "aria-keyshortcuts": key, on: { click: (event) => event.detail < 2 && act() } }, text, " ", el("kbd", { "aria-hidden": "true" }, key));
    this.buttons = [button("1", DONE.pass, "pass", () => this.label("pass")), button("2", DONE.fail, "fail", () => this.label("fail")), button("s", "Skip", "skip", () => this.skip())];
    this.back = button("u", "Undo", "undo", () => this.undo());
    this.tools = el("section", { class: "review-tools", "aria-label": "your label" },
      el("label", { for: "note", class: "sr" }, "note"), this.note, el("div", { class: "review-buttons" }, this.buttons, this.back));
    this.labels = el("span");
    this.main = el("main", { class: "review" },
      el("header", { class: "review-head" }, el("h1", null, "Review"), this.progress, this.bar, this.settings), this.notice, this.article, this.tools);
    fill(this.root, this.main, el("footer", null, this.labels, "Each label is on disk before the next answer is shown. Keys: ", ["1", "2", "s", "u", "n"].map((key, at) => [el("kbd", null, key), ` ${["pass", "fail", "skip", "undo", "note"][at]}${at < 4 ? ", " : "."}`])));
    this.update();
  }

  // settings

  async start() {
    await this.work(async () => {
      const { labels, ...defaults } = await (await ask("/api/review")).json();
      this.labels.textContent = `Labels go to ${labels}. `;
      this.stored = `review-settings ${JSON.stringify(defaults)}`; // another viewer at this port has others
      const chosen = this.chosen ? { only: "chosen" } : {};
      this.choice = { keys: true, ...defaults, ...JSON.parse(sessionStorage.getItem(this.stored) ?? "{}"), ...chosen };
      if (!this.chosen && this.choice.only === "chosen") this.choice.only = defaults.only;
      this.buildSettings();
      await this.begin();
    });
    document.documentElement.dataset.ready = "yes";
  }

  buildSettings() {
    const { reviewer, only, share, keys } = this.choice;
    const option = (current) => ([value, text]) => el("option", { value, selected: value === current }, text);
    const which = [["all", "all, at random"], ["failed", "only those that did not pass (not a random sample)"], ...(this.chosen ? [["chosen", `the ${countText(this.chosen.length, "result")} that you chose (not a random sample)`]] : [])];
    const given = share === null ? "" : String(share);
    const shares = SHARES.some(([value]) => value === given) ? SHARES : [...SHARES, [given, `come first, ${Math.round(share * 100)}% of them`]];
    const form = el("form", { on: { submit: (event) => this.onSubmit(event) } },
      el("label", null, "Your name", el("input", { name: "reviewer", value: reviewer, maxlength: MAX_NAME, autocomplete: "off", spellcheck: "false", placeholder: "no name" })),
      el("label", null, "Answers", el("select", { name: "only" }, which.map(option(only)))),
      el("label", null, "Those that others have labelled", el("select", { name: "share" }, shares.map(option(given)))),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "keys", checked: keys }), "Keys 1, 2, s, u, n"),
      el("button", { type: "submit" }, "Begin with these"));
    fill(this.settings, this.summary, form);
  }

  async onSubmit(event) {
    event.preventDefault();
    if (this.isBusy) return;
    const values = new FormData(event.target);
    this.choice = { reviewer: values.get("reviewer").trim(), only: values.get("only"), share: values.get("share") === "" ? null : Number(values.get("share")), keys: values.has("keys") };
    sessionStorage.setItem(this.stored, JSON.stringify(this.choice));
    this.settings.open = false;
    await this.work(() => this.begin());
  }

  /** Lets the server draw anew. */
  async begin() {
    const { reviewer, only, share } = this.choice;
    Object.assign(this, { review: null, place: null, isShown: false, fresh: 0, ahead: [], history: [], skipped: new Set() });
    fill(this.texts);
    this.title.textContent = "The results are read …";
    const results = only === "chosen" ? this.chosen : [];
    this.review = await (await post("/api/review", { run: this.run, reviewer, only, share, results })).json();
    this.summary.textContent = `${reviewer || "no name"} · ${this.review.sampling === "random" ? "answers at random" : "chosen answers"}`;
    await this.show(this.next());
  }

  // one answer after the other

  /** Returns the place of the answer to show next; null if there is none. */
  next() {
    return this.ahead.shift() ?? (this.fresh < this.review.count ? this.fresh++ : null);
  }

  async show(place, note = "") {
    Object.assign(this, { place, isShown: false });
    this.note.value = note;
    fill(this.texts);
    this.title.textContent = place === null ? this.ending() : `Case ${(place + 1).toLocaleString("en")}`;
    this.update();
    if (place !== null) {
      const shown = await (await ask(`/api/review/${this.review.id}/${place}`)).json();
      fill(this.texts, section("Question", shown.question, "the question is not in the results"), section("Answer", shown.answer, "", "answer"),
        section("Expected outcome", shown.expected_outcome), section("Reference answer", shown.reference_answer));
      this.isShown = true;
    } else if (this.skipped.size) {
      fill(this.texts, el("button", { type: "button", class: "again", on: { click: () => this.showSkipped() } }, `Show the ${this.skipped.size} skipped again`));
    }
    if (this.history.length || document.activeElement === document.body) this.title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  ending() {
    if (!this.done && !this.review.count) return this.review.labelled ? "You have labelled all of these answers" : "There is no answer to label here";
    return this.skipped.size ? "That was the last answer" : "Done: every answer has your label";
  }

  get done() {
    return this.history.filter(({ label }) => label).length;
  }

  label(label) {
    return this.act(async () => {
      const { place } = this, note = this.note.value;
      await post(`/api/review/${this.review.id}/${place}`, { label, note });
      this.history.push({ place, label, note });
      this.skipped.delete(place);
      await this.show(this.next());
    }, "This label is not written");
  }

  skip() {
    return this.act(async () => {
      this.history.push({ place: this.place, label: "", note: this.note.value });
      this.skipped.add(this.place);
      await this.show(this.next());
    });
  }

  /** Takes back the last label, or the last skip, and shows that answer again. */
  undo() {
    const last = this.history?.at(-1);
    if (!last || this.isBusy) return undefined;
    return this.work(async () => {
      if (last.label) await post(`/api/review/${this.review.id}/${last.place}`, { label: "retracted" });
      this.history.pop();
      this.skipped.delete(last.place);
      this.ahead = [...(this.place === null ? [] : [this.place]), ...this.ahead].filter((place) => place !== last.place);
      await this.show(last.place, last.note);
    }, "This is not taken back");
  }

  showSkipped() {
    this.ahead = [...this.skipped];
    this.skipped.clear();
    return this.work(() => this.show(this.next()));
  }

  /** Does something with the answer that is shown; nothing if there is none. */
  act(task, failure) {
    return this.isShown && !this.isBusy ? this.work(task, failure) : undefined;
  }

  /** Does one thing at a time, and tells what went wrong. */
  async work(task, failure = "") {
    this.isBusy = true;
    fill(this.notice);
    this.update();
    try {
      await task();
    } catch (error) {
      this.tell(failure, error);
    } finally {
      this.isBusy = false;
      this.update();
    }
  }

  tell(failure, error) {
    if (!this.review) this.title.textContent = "Nothing can be reviewed";
    const again = !this.review || (this.place !== null && !this.isShown);
    const retry = () => this.work(() => (this.review ? this.show(this.place) : this.begin()));
    fill(this.notice, el("p", { class: "notice failed" }, `${this.isShown && failure ? `${failure}: ` : ""}${error.message}.`,
      this.isShown && failure && " The answer stays here: try again when that is mended.",
      again && [" ", el("button", { type: "button", class: "plain", on: { click: retry } }, "Try again")]));
  }

  update() {
    const { review } = this;
    for (const button of this.buttons) button.disabled = this.isBusy || !this.isShown;
    this.back.disabled = this.isBusy || !this.history?.length;
    this.main.ariaBusy = String(this.isBusy);
    this.tools.hidden = !review;
    this.bar.hidden = !review;
    if (!review) return void (this.progress.textContent = "");
    const done = review.labelled + this.done, all = review.labelled + review.count;
    this.progress.textContent = `${done.toLocaleString("en")} of ${all.toLocaleString("en")}${this.skipped.size ? `, ${this.skipped.size.toLocaleString("en")} skipped` : ""}`;
    Object.assign(this.bar, { max: Math.max(1, all), value: done });
  }

  // keys

  onKey(event) {
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !this.choice?.keys) return;
    const act = { 1: () => this.label("pass"), 2: () => this.label("fail"), s: () => this.skip(), u: () => this.undo(), n: () => this.note.focus() }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  onNoteKey(event) {
    if (event.key === "Escape") this.title.focus({ preventScroll: true });
  }
}

/** Returns a part of a case; nothing if there is none and nothing is to be said of that. */
function section(title, text, absent = "", name = "") {
  if (text === null && !absent) return null;
  const words = text === null ? el("p", { class: "quiet" }, absent) : text.trim() === "" ? el("p", { class: "quiet" }, "(empty)")
    : text.length > WHOLE ? longText(text) : el("div", { class: "text" }, proseBlocks(text));
  return el("section", { class: name }, el("h3", null, title), words);
}

new ReviewPage(document.getElementById("app"), location.pathname.split("/")[2] ?? null).start();
