/** The page of a case: what was asked, what came back, why this score. Of two runs: both answers, and what differs. */

import { copyText, el, fill } from "./dom.js";
import { diffTexts } from "./diff.js";
import { countText, durationText, ERROR, moneyText, scoreText, signedText, stateOf, STATES, timeText } from "./format.js";
import { changedFiles } from "./patch.js";
import { codeBlock, folded, longText } from "./texts.js";
import { traceSection } from "./trace.js";

const MOST_DIFFED = 400_000;

/** Returns a mark for a state: a sign, and the word for it. */
export function stateMark(state, withWord = true) {
  const { word, sign, key } = STATES[state] ?? { word: "no result", sign: "–", key: "absent" };
  return el("span", { class: `mark ${key}`, title: withWord ? null : word }, el("span", { "aria-hidden": "true" }, sign), withWord ? el("span", { class: "word" }, ` ${word}`) : el("span", { class: "sr" }, word));
}

/** Shows the case of a row in a box. `actions` are `close`, `step(by)`, `trial(number)`; `wanted` is a trial. */
export async function showCase(model, row, wanted, box, actions) {
  const shown = {};
  box.shown = shown; // a later call wins over this one
  const run = model.runOf(row);
  const results = run.resultsOf(row);
  const place = Math.max(0, [...results].findIndex((number, at) => trialName(run, number, at) === Number(wanted)));
  const all = await Promise.all([run, ...(model.base && run !== model.base ? [model.base] : [])].map(async (each) => {
    const own = each.resultsOf(row);
    return own.length ? each.result(own[Math.min(place, own.length - 1)]) : null;
  }));
  if (box.shown !== shown) return;
  const [after, before] = all;
  const result = after ?? before;
  const compared = before && after;
  fill(box,
    caseHead(model, row, result, actions),
    results.length > 1 && trialTabs(run, results, place, actions),
    el("div", { class: "case-body" },
      warnings(result),
      compared ? comparedBody(model, row, before, after) : plainBody(result),
      model.base && !compared && el("p", { class: "notice" }, `Only run ${run.meta.letter} has this case.`),
      changedFiles(compared ? [["A", before], ["B", after]] : [["", result]]),
      traceSection(result, !model.meta.traces, compared ? " of B" : ""),
      metrics(result)));
  box.scrollTop = 0;
}

export function trialName(run, number, at) {
  return run.trials[number] || at + 1;
}

function caseHead(model, row, result, actions) {
  const copied = el("span", { class: "copied", role: "status" });
  const button = (label, title, click) => el("button", { type: "button", class: "icon", title, "aria-label": title, on: { click } }, label);
  return el("header", { class: "case-head" },
    el("div", { class: "case-tools" },
      button("←", "close this case (Esc)", actions.close),
      button("↑", "previous case (k)", () => actions.step(-1)),
      button("↓", "next case (j)", () => actions.step(1)),
      el("span", { class: "case-place" }, actions.place),
      copied,
      button("copy", "copy as Markdown (c)", async () => {
        copied.textContent = (await copyText(caseMarkdown(result))) ? "copied" : "could not copy";
      })),
    el("h1", { tabindex: "-1", id: "case-title" }, result.eval_id),
    el("p", { class: "case-line" }, stateMark(model.state(row)), " ", el("span", { class: "score-word" }, `score ${scoreText(result.score)}`),
      [result.dataset, result.target, result.description].filter(Boolean).map((text) => el("span", { class: "fact" }, text)),
      result.file && el("span", { class: "fact" }, result.line ? `${result.file}:${result.line}` : result.file)));
}

function trialTabs(run, results, place, actions) {
  return el("nav", { class: "trials", "aria-label": "trials" }, [...results].map((number, at) => {
    const name = trialName(run, number, at);
    return el("button", { type: "button", "aria-pressed": String(at === place), on: { click: () => actions.trial(name) } },
      stateMark(run.state(number), false), ` trial ${name}, ${scoreText(run.scores[number])}`);
  }));
}

function warnings(result) {
  const details = result.error_details;
  return [
    result.error !== undefined && result.error !== null && el("section", { class: "notice failed", "aria-label": "error" },
      el("h2", null, { timeout: "It timed out", judge: "A judge failed" }[result.failure] ?? "It ended in an error"),
      longText(typeof result.error === "string" ? result.error : JSON.stringify(result.error, null, 2), codeBlock),
      details && folded("traceback", details)),
    result.failure === "judge" && !result.error && el("p", { class: "notice" }, "! A judge failed: the score is not its judgement."),
    result.note && el("p", { class: "notice", dir: "auto" }, String(result.note)),
    result.stop_reason === "length" && !result.note && el("p", { class: "notice" }, "The answer was cut off at the token limit."),
    result.dry_run && el("p", { class: "notice" }, "A dry run: a mock answered."),
  ];
}

function textSection(title, text, absent) {
  if (text === undefined || text === null || text === "") return absent && el("section", null, el("h2", null, title), el("p", { class: "quiet" }, absent));
  return el("section", null, el("h2", null, title), longText(typeof text === "string" ? text : JSON.stringify(text, null, 2)));
}

function asked(result) {
  return [
    textSection("Question", result.question, "The question is not in these results."),
    textSection("Expected", result.expected_outcome),
    textSection("Reference answer", result.reference_answer),
  ];
}

function plainBody(result) {
  return el("div", { class: "sides" },
    el("div", null, asked(result)),
    el("div", null, textSection("Answer", result.candidate_answer, "There is no answer."), evaluators(result)));
}

function evaluators(result) {
  const parts = Array.isArray(result.evaluator_results) ? result.evaluator_results.toSorted((a, b) => stateOf(a.verdict) - stateOf(b.verdict)) : [];
  if (!parts.length) return hitsAndMisses(result);
  return el("section", { class: "judgements" }, el("h2", null, "Evaluators"), parts.map((part) => judgement(part, parts.length > 1)));
}

function judgement(part, showWeight) {
  return el("article", { class: "judgement" },
    el("h3", null, stateMark(part.failed ? ERROR : stateOf(part.verdict)), " ", el("span", { class: "judge-name" }, part.name),
      el("span", { class: "number" }, scoreText(part.score)),
      el("span", { class: "quiet" }, part.type === part.name ? "" : part.type ?? "", showWeight && part.weight !== undefined && part.weight !== 1 ? ` weight ${part.weight}` : "")),
    hitsAndMisses(part),
    part.details !== undefined && part.details !== null && folded("details", part.details),
    part.evaluator_provider_request && folded("what the judge was asked", part.evaluator_provider_request));
}

function hitsAndMisses({ hits, misses, reasoning }) {
  const items = (list, sign, kind, word) => (Array.isArray(list) ? list : []).map((text) =>
    el("li", { class: kind }, el("span", { "aria-hidden": "true" }, sign), el("span", { class: "sr" }, `${word}: `), el("span", { dir: "auto" }, longText(String(text), (each) => [each]))));
  const all = [...items(misses, "✗", "miss", "missed"), ...items(hits, "✓", "hit", "found")];
  return [all.length > 0 && el("ul", { class: "findings" }, all), reasoning && el("div", { class: "reasoning" }, longText(String(reasoning)))];
}

function comparedBody(model, row, before, after) {
  const delta = (after.score ?? 0) - (before.score ?? 0);
  return [
    el("p", { class: "both-scores" }, "A ", stateMark(model.base.rowStates[row]), ` ${scoreText(before.score)}`, el("span", { class: "arrow" }, "→"), "B ", stateMark(model.run.rowStates[row]), ` ${scoreText(after.score)}`, el("span", { class: "change" }, signedText(delta))),
    asked({ ...before, ...after }),
    answersDiff(before.candidate_answer ?? "", after.candidate_answer ?? ""),
    before.error && el("p", { class: "notice failed" }, `A ended in an error: ${String(before.error)}`),
    sideBySide(before, after),
  ];
}

/** Returns the two answers as one text with what was removed and what was added, or each in a column. */
function answersDiff(before, after) {
  const box = el("section", { class: "answers" });
  if (before === after) return fill(box, el("h2", null, "Answer ", el("small", null, before ? "the same in A and B" : "none in A and B")), before && longText(before));
  const views = {
    "differences": () => el("div", { class: "text diff" }, el("p", { class: "prose", dir: "auto" }, diffTexts(before, after).map(diffPart))),
    "side by side": () => el("div", { class: "sides" }, [["A", before], ["B", after]].map(([letter, text]) => el("div", null, el("h3", null, letter), text ? longText(text) : el("p", { class: "quiet" }, "There is no answer.")))),
  };
  const names = before.length + after.length > MOST_DIFFED || !before || !after ? ["side by side"] : ["differences", "side by side"];
  const view = el("div");
  const buttons = names.length > 1 && el("span", { class: "switch", role: "group", "aria-label": "show" }, names.map((name, at) => el("button", { type: "button", "aria-pressed": String(at === 0), on: { click: (event) => {
    for (const each of event.target.parentElement.children) each.setAttribute("aria-pressed", String(each === event.target));
    fill(view, views[name]());
  } } }, name)));
  fill(view, views[names[0]]());
  return fill(box, el("h2", null, "Answers ", buttons), view);
}

/** Draws a part of a difference; a long stretch that both have is folded. */
function diffPart({ kind, text }, at, all) {
  if (kind === "removed") return el("del", null, el("span", { class: "sr" }, " only in A: "), text);
  if (kind === "added") return el("ins", null, el("span", { class: "sr" }, " only in B: "), text);
  if (text.length < 900) return text;
  const start = at === 0 ? "" : text.slice(0, 300), end = at === all.length - 1 ? "" : text.slice(-300);
  const hidden = text.slice(start.length, text.length - end.length);
  const button = el("button", { type: "button", class: "more inline", on: { click: () => button.replaceWith(hidden) } }, `… ${countText(hidden.length, "character")} the same …`);
  return [start, button, end];
}

/** Returns the evaluators of two results in two columns, those that differ first. */
function sideBySide(before, after) {
  const list = (result) => (Array.isArray(result.evaluator_results) ? result.evaluator_results : []);
  const names = [...new Set([...list(after), ...list(before)].map((part) => part.name))];
  const pairs = names.map((name) => [list(before).find((part) => part.name === name), list(after).find((part) => part.name === name)]);
  const change = ([one, other]) => Math.abs((other?.score ?? -1) - (one?.score ?? -1));
  pairs.sort((one, other) => change(other) - change(one));
  if (!pairs.length) return el("div", { class: "sides" }, [["A", before], ["B", after]].map(([letter, result]) => el("div", null, el("h3", null, letter), hitsAndMisses(result))));
  return el("section", { class: "judgements" }, el("h2", null, "Evaluators"), pairs.map((pair) => el("div", { class: "sides pair" }, pair.map((part, at) =>
    el("div", null, el("span", { class: "letter" }, "AB"[at]), part ? judgement(part, false) : el("p", { class: "quiet" }, "not evaluated"))))));
}

function metrics(result) {
  const measured = result.execution_metrics ?? {}, tokens = measured.token_usage ?? {};
  const rows = [
    ["duration", measured.duration_ms !== undefined && durationText(Number(measured.duration_ms))],
    ["first token", measured.ttft_ms !== undefined && durationText(Number(measured.ttft_ms))],
    ["cost", measured.cost_usd !== undefined && moneyText(Number(measured.cost_usd))],
    ["tokens", (tokens.input || tokens.output) && `${(tokens.input ?? 0).toLocaleString("en")} in, ${(tokens.output ?? 0).toLocaleString("en")} out${tokens.cached ? `, ${tokens.cached.toLocaleString("en")} cached` : ""}${tokens.reasoning ? `, ${tokens.reasoning.toLocaleString("en")} reasoning` : ""}`],
    ["attempts", result.attempt > 1 && result.attempt],
    ["stopped by", result.stop_reason],
    ["when", result.timestamp && timeText(result.timestamp)],
    ["run", result.run_id],
    ["conversation", result.conversation_id],
    ["workspace", result.workspace_path],
    ["written in", result.file && `${result.file}${result.line ? `, line ${result.line}` : ""}`],
    ["metadata", result.metadata && Object.entries(result.metadata).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ")],
    ["digests", result.digests && Object.entries(result.digests).map(([key, value]) => `${key} ${value}`).join(", ")],
  ].filter(([, value]) => value);
  return rows.length > 0 && el("section", { class: "metrics" }, el("h2", null, "About this result"),
    el("dl", null, rows.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, String(value))))));
}

/** Returns a result as Markdown, to be pasted into an issue. */
export function caseMarkdown(result) {
  const fence = (text) => {
    const ticks = "`".repeat(Math.max(3, ...[...String(text).matchAll(/`+/g)].map((match) => match[0].length + 1)));
    return `${ticks}\n${text}\n${ticks}`;
  };
  const parts = [`### ${result.eval_id}: ${result.error ? "error" : result.verdict ?? ""} ${scoreText(result.score)}`];
  if (result.question) parts.push("**Question**", fence(result.question));
  if (result.expected_outcome) parts.push("**Expected**", fence(result.expected_outcome));
  if (result.error) parts.push("**Error**", fence(result.error));
  if (result.candidate_answer) parts.push("**Answer**", fence(result.candidate_answer));
  for (const part of result.evaluator_results ?? []) {
    const findings = [...(part.misses ?? []).map((text) => `- ✗ ${text}`), ...(part.hits ?? []).map((text) => `- ✓ ${text}`)];
    parts.push(`**${part.name}**: ${part.verdict} ${scoreText(part.score)}`, [...findings, part.reasoning].filter(Boolean).join("\n"));
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}
