"""Rules for every page: hostile texts stay text, and pages are accessible."""

from typing import Any

from tests.kits.pages import a_result

PAYLOADS = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</script><script>window.hacked = 1</script>",
    "</template></style></textarea></title><svg onload='window.hacked = 1'>",
    "javascript:window.hacked=1",
    '"><iframe src="javascript:parent.hacked=1"></iframe>',
    "{{constructor.constructor('window.hacked=1')()}} ${window.hacked = 1}",
    "<!--<script>",
    "<a href='https://example.com/steal'>click</a> https://example.com/steal ![x](https://example.com/x.png)",
    "<link rel=stylesheet href=https://example.com/x.css><base href=https://example.com/>",
]

ACCESSIBLE = """
(() => {
  const problems = [];
  const visible = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true}) && !element.closest('[inert], [aria-hidden="true"], .sr');
  for (const element of document.querySelectorAll('button, a, input, summary, canvas, svg[role=img], [role=table], dialog, nav, section[aria-labelledby]')) {
    const label = element.getAttribute('aria-label') || element.innerText || element.textContent || element.title
      || document.getElementById(element.getAttribute('aria-labelledby'))?.textContent || element.labels?.[0]?.textContent;
    if (visible(element) && !label?.trim()) problems.push('no name: ' + element.outerHTML.slice(0, 120));
  }
  for (const role of ['main', 'h1', 'footer, .case:not([hidden])', '[role=search]']) if (!document.querySelector(role)) problems.push('missing: ' + role);
  const parse = (text) => { const parts = text.match(/[\\d.]+/g).map(Number); return {rgb: parts.slice(0, 3), alpha: parts[3] ?? 1}; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const behind = (element) => { for (let each = element; each; each = each.parentElement) { const {rgb, alpha} = parse(getComputedStyle(each).backgroundColor); if (alpha === 1) return rgb; } return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !visible(element) || element.closest('script, style')) continue;
    const [one, two] = [light(parse(getComputedStyle(element).color).rgb), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${walker.currentNode.data.slice(0, 40)}`);
  }
  return [...new Set(problems)];
})()
"""


def hostile_result(payload: str) -> dict[str, Any]:
    """A result that has a text in every field."""
    part = {
        "name": payload,
        "type": payload,
        "score": 0.5,
        "weight": 1.0,
        "verdict": "fail",
        "hits": [payload],
        "misses": [payload],
        "reasoning": payload,
        "details": {payload: payload},
        "evaluator_provider_request": payload,
    }
    event = {
        "type": "tool_call",
        "name": payload,
        "input": {payload: payload},
        "output": payload,
        "text": payload,
        "metadata": {"x": payload},
        "timestamp": payload,
    }
    fields = dict.fromkeys(
        (
            "dataset",
            "target",
            "question",
            "expected_outcome",
            "reference_answer",
            "candidate_answer",
            "note",
            "stop_reason",
            "run_id",
            "description",
            "conversation_id",
            "file",
            "reasoning",
            "error_details",
            "file_changes",
            "timestamp",
        ),
        payload,
    )
    return a_result(
        payload,
        0.5,
        **fields,
        evaluator_results=[part],
        trace=[event],
        error=payload,
        metadata={payload: payload},
        digests={"case": payload, "target": "t", "evaluators": "e", "agentv": payload},
        trace_summary={"toolCallsByName": {payload: 1}},
    )
