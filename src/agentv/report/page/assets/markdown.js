// @ts-check
/** Renders a result as Markdown, for pasting into an issue. */

/** @import { Result } from "./model.js" */

import { scoreText } from "./format.js";
import { ownMisses } from "./judgements.js";

/**
 * Return a result as Markdown.
 * @param {Result} result
 */
export function caseMarkdown(result) {
  const verdict = result.error ? "error" : (result.verdict ?? "");
  const parts = [`### ${result.eval_id}: ${verdict} ${scoreText(result.score)}`];
  if (result.question) parts.push("**Question**", fenced(result.question));
  if (result.expected_outcome) parts.push("**Expected**", fenced(result.expected_outcome));
  if (result.error) parts.push("**Error**", fenced(result.error));
  if (result.candidate_answer) parts.push("**Answer**", fenced(result.candidate_answer));
  if (Array.isArray(result.failed_required)) {
    parts.push(`**Failed required checks**: ${result.failed_required.join(", ")}`);
  }
  parts.push(findings({ misses: ownMisses(result) }));
  for (const part of result.evaluator_results ?? []) {
    parts.push(`**${part.name}**: ${judgementState(part)}`, findings(part));
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

/** @param {Record<string, any>} part */
function judgementState({ applicable, failed, verdict, score }) {
  if (applicable === false) return "does not apply";
  if (failed) return "could not judge";
  return `${verdict} ${scoreText(score)}`;
}

/** @param {Record<string, any>} part */
function findings({ misses, hits, reasoning }) {
  const lines = [];
  for (const text of misses ?? []) lines.push(`- ✗ ${text}`);
  for (const text of hits ?? []) lines.push(`- ✓ ${text}`);
  if (reasoning) lines.push(reasoning);
  return lines.join("\n");
}

/**
 * Return a text in a code block. The fence is longer than any fence in the text.
 * @param {unknown} text
 */
function fenced(text) {
  const runs = String(text).match(/`+/g) ?? [];
  const longest = Math.max(2, ...runs.map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
