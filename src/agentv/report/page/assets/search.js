/** Full-text search: looks through the questions and answers block by block, and lets the page live meanwhile. */

import { breathe } from "./dom.js";

const FIELDS = ["eval_id", "question", "candidate_answer", "error"];

/**
 * Finds the rows among `candidates` whose id, question or answer has all the texts. Calls `progress(found, share)` as
 * it goes on. `signal.stopped` ends it. `found` is a byte for each row.
 */
export async function searchTexts(model, terms, candidates, signal, progress) {
  const wanted = new Uint8Array(model.count);
  for (const row of candidates) wanted[row] = 1;
  const hits = terms.map(() => new Uint8Array(model.count));
  markIds(model, terms, hits);
  const jobs = model.runs.flatMap((run) => blocksWith(run, wanted).map((block) => ({ run, block })));
  let reported = performance.now();
  progress(combine(terms, hits, wanted, jobs.length === 0), 0);
  for (const [done, { run, block }] of jobs.entries()) {
    const lines = await run.results.lines(block);
    if (signal.stopped) return;
    searchBlock(run, lines, run.results.starts[block], terms, hits, wanted);
    if (performance.now() - reported > 150 && done + 1 < jobs.length) {
      progress(combine(terms, hits, wanted, false), (done + 1) / jobs.length);
      await breathe();
      reported = performance.now();
      if (signal.stopped) return;
    }
  }
  progress(combine(terms, hits, wanted, true), 1);
}

/** Marks the rows whose ids have a text: all at once, in the one text that they are. */
function markIds(model, terms, hits) {
  const ids = model.ids.toLowerCase();
  if (ids.length !== model.ids.length) {
    for (let row = 0; row < model.count; row++) {
      const id = model.id(row).toLowerCase();
      terms.forEach((term, number) => { if (id.includes(term.value)) hits[number][row] = 1; });
    }
    return;
  }
  terms.forEach((term, number) => {
    let row = 0;
    for (let at = ids.indexOf(term.value); at >= 0; at = ids.indexOf(term.value, at + 1)) {
      while (model.idStarts[row + 1] <= at) row++;
      if (at + term.value.length <= model.idStarts[row + 1]) hits[number][row] = 1;
    }
  });
}

function blocksWith(run, wanted) {
  const { starts, count } = run.results;
  return [...starts.keys()].filter((block) => {
    const end = starts[block + 1] ?? count;
    for (let at = starts[block]; at < end; at++) if (wanted[run.rows[at]]) return true;
    return false;
  });
}

function searchBlock(run, lines, first, terms, hits, wanted) {
  const needles = terms.map((term) => JSON.stringify(term.value).slice(1, -1));
  const whole = lines.whole().toLowerCase();
  if (!needles.some((needle) => whole.includes(needle))) return;
  whole.split("\n").forEach((line, at) => {
    const row = run.rows[first + at];
    if (!wanted[row] || !needles.some((needle, number) => !hits[number][row] && line.includes(needle))) return;
    const result = JSON.parse(lines.text(at));
    const texts = FIELDS.map((field) => (typeof result[field] === "string" ? result[field].toLowerCase() : ""));
    terms.forEach((term, number) => {
      if (texts.some((text) => text.includes(term.value))) hits[number][row] = 1;
    });
  });
}

/** Returns which rows fit all the terms. Until all is read, nobody knows what a text is not in. */
function combine(terms, hits, wanted, finished) {
  const found = new Uint8Array(wanted.length);
  for (let row = 0; row < wanted.length; row++) {
    found[row] = wanted[row] && terms.every((term, number) => (term.negated ? finished && !hits[number][row] : hits[number][row]));
  }
  return found;
}
