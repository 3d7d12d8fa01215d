/** Small plots that are read without a legend. Each can be used as a filter. */

import { el, fill, svg } from "./dom.js";
import { BORDERLINE, countText, durationText, FAIL, moneyText, PASS, percentText, scoreText, signedText, STATES } from "./format.js";

const BINS = ["0", "0.2", "0.4", "0.6", "0.8", "1"];

/** Returns the distribution of scores: five bars, each a button that filters. `shade` are the same counts of a base. */
export function histogram(counts, base, filterBy) {
  const most = Math.max(1, ...counts, ...(base ?? []));
  const bars = counts.map((count, bin) => {
    const [low, high] = [BINS[bin], BINS[bin + 1]];
    const text = `score ${low} to ${high}: ${countText(count, "case")}${base ? `, before ${base[bin]}` : ""}`;
    const query = bin === 4 ? `score>=${low}` : `score>=${low} score<${high}`;
    return el("button", { class: "bar", type: "button", title: text, on: { click: () => filterBy(bin === 0 ? `score<${high}` : query) } },
      el("span", { class: "bar-count" }, count.toLocaleString("en"), el("span", { class: "sr" }, " cases with a score of ")),
      el("span", { class: "bar-room" },
        base && el("span", { class: "bar-base", style: { height: `${(base[bin] / most) * 100}%` } }),
        el("span", { class: `bar-fill bin-${bin}`, style: { height: `${(count / most) * 100}%` } })),
      el("span", { class: "bar-name" }, bin === 4 ? "0.8–1" : `${low}–${high}`));
  });
  return el("div", { class: "histogram" }, bars);
}

/** Returns the table of evaluators, the worst first: mean with its interval, pass rate, failures; `base` are those of A. */
export function evaluatorTable(evaluators, base, filterBy, shown = 8) {
  const before = new Map((base ?? []).map((each) => [each.name, each.mean]));
  const anyFailures = evaluators.some((each) => each.failures);
  const row = (each) => el("tr", null,
    el("th", { scope: "row" }, el("button", { type: "button", class: "plain", title: `show the cases that ${each.name} judged`, on: { click: () => filterBy("evaluator", each.name) } }, each.name || "(no name)")),
    el("td", { class: "dot-cell" }, dotPlot(each, before.get(each.name))),
    el("td", { class: "number" }, scoreText(each.mean)),
    el("td", { class: "number" }, percentText(each.pass_rate)),
    anyFailures && el("td", { class: "number" }, each.failures || "–"));
  const body = el("tbody", null, evaluators.slice(0, shown).map(row));
  const more = evaluators.length > shown && el("button", { type: "button", class: "more", on: { click: () => { body.append(...evaluators.slice(shown).map(row)); more.remove(); } } }, `show all ${evaluators.length}`);
  return [el("table", { class: "evaluators" },
    el("thead", null, el("tr", null, el("th", { scope: "col" }, "evaluator"), el("th", { scope: "col" }, base ? "0 to 1, with 95%, A grey" : "0 to 1, with 95%"),
      el("th", { scope: "col", class: "number" }, "mean"), el("th", { scope: "col", class: "number" }, "pass"),
      anyFailures && el("th", { scope: "col", class: "number", title: "how often it broke" }, "broke"))),
    body), more];
}

function dotPlot({ mean, low, high }, before) {
  const at = (value) => 4 + value * 92;
  const interval = low === null || low === undefined ? "" : `, 95% ${scoreText(low)} to ${scoreText(high)}`;
  return svg("svg", { viewBox: "0 0 100 12", class: "dot-plot", role: "img", "aria-label": `mean ${scoreText(mean)}${interval}${before === undefined ? "" : `, in A ${scoreText(before)}`}`, preserveAspectRatio: "none" },
    svg("line", { x1: 4, x2: 96, y1: 6, y2: 6, class: "axis" }),
    interval && svg("line", { x1: at(low), x2: at(high), y1: 6, y2: 6, class: "interval" }),
    before !== undefined && svg("line", { x1: at(before), x2: at(before), y1: 1.5, y2: 10.5, class: "before" }),
    svg("line", { x1: at(mean), x2: at(mean), y1: 1.5, y2: 10.5, class: "mean" }));
}

/** Draws score against duration or cost; dragging over dots filters by them. */
export class Scatter {
  constructor(model, filterBy) {
    Object.assign(this, { model, filterBy });
    const known = (name) => model.run[name].some((value) => value > 0 && value !== model.run[name].find((first) => first >= 0));
    this.measures = [known("rowDurations") && "duration", known("rowCosts") && "cost"].filter(Boolean);
    this.measure = this.measures[0];
  }

  element() {
    this.canvas = el("canvas", { role: "img", tabindex: "-1" });
    this.brush = el("div", { class: "brush", hidden: true });
    this.ticks = el("div", { class: "ticks", "aria-hidden": "true" });
    const buttons = this.measures.length > 1 && el("span", { class: "switch", role: "group", "aria-label": "across" },
      this.measures.map((measure) => el("button", { type: "button", "aria-pressed": String(measure === this.measure), on: { click: (event) => {
        this.measure = measure;
        for (const each of event.target.parentElement.children) each.setAttribute("aria-pressed", String(each === event.target));
        this.draw();
      } } }, measure)));
    const field = el("div", { class: "scatter-field" }, this.canvas, this.brush);
    this.listen(field);
    new ResizeObserver(() => this.draw()).observe(field);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    return [el("h2", null, "Score against ", buttons || this.measure), el("div", { class: "scatter" }, field, this.ticks)];
  }

  read() {
    return this.measure === "cost" ? this.model.run.rowCosts : this.model.run.rowDurations;
  }

  draw() {
    const { width, height } = this.canvas.parentElement.getBoundingClientRect();
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const values = this.read(), { run } = this.model;
    this.scale(values, width, height);
    const style = getComputedStyle(document.documentElement);
    const colours = STATES.map((state) => style.getPropertyValue(`--mark-${state.key}`));
    context.strokeStyle = style.getPropertyValue("--line");
    for (const score of [0, 0.5, 1]) {
      context.beginPath();
      context.moveTo(0, Math.round(this.y(score)) + 0.5);
      context.lineTo(width, Math.round(this.y(score)) + 0.5);
      context.stroke();
    }
    const many = this.model.count > 2000;
    const size = many ? 1.5 : this.model.count > 300 ? 2 : 3;
    context.globalAlpha = many ? 0.35 : 0.75;
    let drawn = 0;
    for (let row = 0; row < this.model.count; row++) {
      if (!(values[row] >= 0) || Number.isNaN(run.rowScores[row])) continue;
      context.fillStyle = context.strokeStyle = colours[run.rowStates[row]];
      mark(context, run.rowStates[row], this.x(values[row]), this.y(run.rowScores[row]), size, many);
      drawn++;
    }
    const text = this.measure === "cost" ? moneyText : durationText;
    fill(this.ticks, el("span", null, text(this.low)), el("span", null, text(this.high)));
    this.canvas.setAttribute("aria-label", `score against ${this.measure}: ${countText(drawn, "case")}, from ${text(this.low)} to ${text(this.high)}; filter with ${this.measure}> and score<`);
  }

  /** Finds the ends of the axis; it is logarithmic where values differ a lot. */
  scale(values, width, height) {
    this.low = Infinity;
    this.high = -Infinity;
    for (const value of values) {
      if (value < this.low) this.low = value;
      if (value > this.high) this.high = value;
    }
    const logarithmic = this.low > 0 && this.high / this.low > 20;
    const map = logarithmic ? Math.log : (value) => value;
    const back = logarithmic ? Math.exp : (value) => value;
    const from = map(this.low), room = map(this.high) - from || 1;
    const edge = 6;
    this.x = (value) => edge + ((map(value) - from) / room) * (width - 2 * edge);
    this.y = (score) => height - edge - score * (height - 2 * edge);
    this.value = (x) => back(from + ((x - edge) / (width - 2 * edge)) * room);
    this.score = (y) => (height - edge - y) / (height - 2 * edge);
  }

  listen(field) {
    let from = null;
    const place = (event) => {
      const { left, top } = field.getBoundingClientRect();
      return { x: event.clientX - left, y: event.clientY - top };
    };
    field.addEventListener("pointerdown", (event) => { from = place(event); field.setPointerCapture(event.pointerId); event.preventDefault(); });
    field.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = place(event);
      this.brush.hidden = false;
      for (const [name, value] of Object.entries({ left: Math.min(from.x, to.x), top: Math.min(from.y, to.y), width: Math.abs(to.x - from.x), height: Math.abs(to.y - from.y) })) this.brush.style.setProperty(name, `${value}px`);
    });
    field.addEventListener("pointerup", (event) => {
      const to = place(event), start = from;
      from = null;
      this.brush.hidden = true;
      if (!start || Math.abs(to.x - start.x) < 4 || Math.abs(to.y - start.y) < 4) return;
      const [left, right] = [start.x, to.x].sort((a, b) => a - b), [top, bottom] = [start.y, to.y].sort((a, b) => a - b);
      const digits = (value) => String(Number(value.toPrecision(4)));
      this.filterBy([`${this.measure}>=${digits(Math.max(0, this.value(left)))}`, `${this.measure}<=${digits(this.value(right))}`,
        `score>=${Math.max(0, this.score(bottom)).toFixed(2)}`, `score<=${Math.min(1, this.score(top)).toFixed(2)}`].join(" "));
    });
    field.addEventListener("pointercancel", () => { from = null; this.brush.hidden = true; });
  }
}

/** Draws a dot whose shape tells its state: passes are round, what failed is a cross. */
function mark(context, state, x, y, size, many) {
  if (many) {
    context.fillRect(x - size / 2, y - size / 2, size, size);
  } else if (state === PASS) {
    context.beginPath();
    context.arc(x, y, size, 0, 7);
    context.fill();
  } else if (state === BORDERLINE) {
    context.fillRect(x - size, y - size * 0.6, size * 2, size * 1.2);
  } else {
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y - size);
    context.lineTo(x - size, y + size);
    context.stroke();
  }
}

/** Returns the interval of a difference on a line with zero and the margin; `bounds` allow for what has no score. */
export function intervalPlot({ mean, low, high, margin, verdict, bounds }) {
  const reach = Math.max(0.05, ...[low, high, mean, margin * 1.5, ...(bounds ?? [])].filter(Number.isFinite).map(Math.abs)) * 1.15;
  const at = (value) => `${(50 + (value / reach) * 49).toFixed(2)}%`;
  const line = (from, to, kind, y1 = 22, y2 = 22) => svg("line", { x1: at(from), x2: at(to), y1, y2, class: kind });
  const side = STATES[verdict === "better" ? PASS : verdict === "worse" ? FAIL : BORDERLINE].key;
  const text = `difference ${signedText(mean)}${Number.isFinite(low) ? `, 95% ${signedText(low)} to ${signedText(high)}` : ""}; margin ${signedText(-margin)}`;
  const known = Number.isFinite(low);
  return [svg("svg", { class: "interval-plot", role: "img", "aria-label": text },
    svg("rect", { x: at(-margin), y: 6, width: `${((margin / reach) * 49).toFixed(2)}%`, height: 32, class: "margin" }),
    line(-reach, reach, "axis"), line(0, 0, "zero", 2, 42),
    bounds && line(bounds[0], bounds[1], "bounds"),
    known && [line(low, high, `reach ${side}`), line(low, low, `reach end ${side}`, 15, 29), line(high, high, `reach end ${side}`, 15, 29)],
    svg("circle", { cx: at(mean), cy: 22, r: 8, class: `middle ${side}` })),
  el("div", { class: "interval-ends", "aria-hidden": "true" }, el("span", null, "◂ worse"), el("span", null, "0"), el("span", null, "better ▸"))];
}
