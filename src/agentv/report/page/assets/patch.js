// @ts-check
/** Shows the files that an agent changed as a unified diff with removed and added lines marked. */

/**
 * @import { Child } from "./dom.js"
 * @import { Result } from "./model.js"
 */

import { el, elWith } from "./dom.js";
import { longText } from "./texts.js";

/** The header of a hunk, with the number of lines of the old and the new file. */
const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;

/**
 * Return the changes of one result, or of two side by side.
 * @param {{ letter: string, result: Result }[]} sides
 */
export function changedFiles(sides) {
  if (!sides.some(({ result }) => result.file_changes)) return null;
  const blocks = sides.map(({ letter, result }) => {
    const changes = result.file_changes;
    const content = changes
      ? longText(String(changes), patchBlock)
      : el("p.quiet", "No files were changed.");
    return el("div", letter && el("h3", letter), content);
  });
  const content = sides.length > 1 ? el("div.sides", blocks) : blocks;
  return el("section.changes", el("h2", "Changed files"), content);
}

/**
 * Return a diff. Inside a hunk, "--- x" is a removed line; outside, it is a file name.
 * @param {string} text
 * @returns {Child[]}
 */
export function patchBlock(text) {
  let removedLeft = 0;
  let addedLeft = 0;
  /** @param {string} line */
  const drawLine = (line) => {
    const isInHunk = removedLeft > 0 || addedLeft > 0;
    if (!isInHunk) {
      const hunk = HUNK.exec(line);
      if (hunk) {
        removedLeft = Number(hunk[1] ?? 1);
        addedLeft = Number(hunk[2] ?? 1);
      }
      const isFile = line.startsWith("diff --git ");
      return elWith("span", { class: isFile ? "patch-file" : "patch-head" }, `${line}\n`);
    }
    const sign = line[0];
    if (sign === "\\") return el("span.patch-head", `${line}\n`);
    if (sign !== "+") removedLeft--;
    if (sign !== "-") addedLeft--;
    if (sign === "+") return el("ins", `${line}\n`);
    if (sign === "-") return el("del", `${line}\n`);
    return el("span", `${line}\n`);
  };
  const lines = text.replace(/\n$/, "").split("\n");
  const props = { class: "code patch", tabindex: "0", "aria-label": "changed files" };
  return [elWith("pre", props, lines.map(drawLine))];
}
