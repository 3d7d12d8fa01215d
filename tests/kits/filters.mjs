/**
 * Applies filters to the rows of a run as a page does. Reads the folder of the modules from the arguments, and from stdin
 * the columns of a run, the fields of its results and filters; writes the rows that each filter selects, or what is wrong
 * with it, to stdout. All as JSON.
 */

import { readFileSync } from "node:fs";

const assets = process.argv[2];
const { readColumns } = await import(`${assets}/columns.js`);
const { CaseFigures } = await import(`${assets}/figures.js`);
const { lineStores, Model, Run } = await import(`${assets}/model.js`);
const { isRead, rowFilter } = await import(`${assets}/match.js`);
const { parseQuery, TEXT } = await import(`${assets}/query.js`);
const { searchRows } = await import(`${assets}/search.js`);

const input = JSON.parse(readFileSync(0, "utf-8"));
const blocks = { "f0-0": input.fields.join("\n"), "r0-0": input.results.join("\n") };
const readBlock = async (name) => new TextEncoder().encode(blocks[name]);
const columns = readColumns(({ block, type }) => {
  return type.from(input.columns[block], (value) => value ?? NaN);
});
const starts = { results: [0], snippets: [0], fields: [0] };
const stores = lineStores(readBlock, 0, starts, input.ids.length);
const run = new Run(input.meta, stores, new CaseFigures(columns, input.ids.length));
const lengths = Uint32Array.from(input.ids, (id) => id.length);
const model = new Model({ runs: [input.meta] }, input.ids.join(""), lengths, [run]);

async function selectedBy({ filter, on }) {
  const terms = parseQuery(filter, on ?? "results");
  const problem = terms.find((term) => term.problem)?.problem;
  if (problem) return { problem, texts: [] };
  const texts = terms.filter((term) => term.key === TEXT).map((term) => term.value);
  const read = terms.filter((term) => isRead(term) || (term.key === TEXT && term.value));
  let rows = Uint32Array.from(input.ids.keys()).filter(rowFilter(model, terms));
  const candidates = rows;
  const progress = (found, share) => {
    if (share === 1) rows = candidates.filter((row) => found[row]);
  };
  if (read.length > 0) await searchRows(model, read, candidates, { isStopped: false }, progress);
  return { rows: [...rows], texts };
}

const selected = [];
for (const each of input.filters) selected.push(await selectedBy(each));
process.stdout.write(JSON.stringify(selected));
