/** What agents changed in files: a unified diff, with the lines marked that were removed and added. */

import { el } from "./dom.js";
import { longText } from "./texts.js";

const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;

/** Returns what one result changed, or two in columns; pairs of a letter and a result. */
export function changedFiles(sides) {
  if (!sides.some(([, result]) => result.file_changes)) return null;
  const blocks = sides.map(([letter, { file_changes: changes }]) => el("div", null, letter && el("h3", null, letter),
    changes ? longText(String(changes), patchBlock) : el("p", { class: "quiet" }, "Nothing was changed.")));
  return el("section", { class: "changes" }, el("h2", null, "Changed files"), sides.length > 1 ? el("div", { class: "sides" }, blocks) : blocks);
}

/** Draws a diff. A hunk says how many lines it has: "--- x" in it is a line that was removed, outside of it the name of a file. */
function patchBlock(text) {
  let removed = 0, added = 0;
  const draw = (line) => {
    if (removed <= 0 && added <= 0) {
      const hunk = HUNK.exec(line);
      if (hunk) [removed, added] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
      return el("span", { class: line.startsWith("diff --git ") ? "patch-file" : "patch-head" }, `${line}\n`);
    }
    const sign = line[0];
    if (sign === "\\") return el("span", { class: "patch-head" }, `${line}\n`);
    if (sign !== "+") removed--;
    if (sign !== "-") added--;
    return el({ "+": "ins", "-": "del" }[sign] ?? "span", null, `${line}\n`);
  };
  return [el("pre", { class: "code patch", tabindex: "0", "aria-label": "changed files" }, text.replace(/\n$/, "").split("\n").map(draw))];
}
