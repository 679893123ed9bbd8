"use strict";

// Renders Markdown as DOM nodes. Text only ever becomes text nodes, and links only http, https and
// mailto, so output of a model cannot run as a script or as markup.

const markdown = (() => {
  const element = (name, children = [], attributes = {}) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // The first match of any of these, from left to right, becomes a node.
  const INLINE = [
    { pattern: /(`+)([^`](?:.*?[^`])?)\1(?!`)/s, node: (m) => element("code", [m[2].trim() || m[2]]) },
    { pattern: /\\([\\`*_{}[\]()#+\-.!~|<>])/, node: (m) => document.createTextNode(m[1]) },
    { pattern: /!?\[([^\]]*)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)/, node: (m) => link(m[2], inline(m[1]), m[0]) },
    { pattern: /<((?:https?:\/\/|mailto:)[^\s<>]+)>/, node: (m) => link(m[1], [m[1]], m[0]) },
    { pattern: /https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?*_]/, node: (m) => link(m[0], [m[0]], m[0]) },
    { pattern: /(\*\*|__)(?=\S)(.+?\S?)\1/s, node: (m) => element("strong", inline(m[2])) },
    { pattern: /~~(?=\S)(.+?)~~/s, node: (m) => element("del", inline(m[1])) },
    { pattern: /\*(?=[^\s*])(.*?[^\s*])\*(?!\*)/s, node: (m) => element("em", inline(m[1])) },
    { pattern: /(?<![\p{L}\p{N}])_(?=[^\s_])(.*?[^\s_])_(?![\p{L}\p{N}])/su, node: (m) => element("em", inline(m[1])) },
    { pattern: / {2,}\n|<br\s*\/?>/, node: () => element("br") },
  ];

  function link(address, children, source) {
    let url;
    try {
      url = new URL(address);
    } catch {
      return document.createTextNode(source);
    }
    if (!["http:", "https:", "mailto:"].includes(url.protocol)) return document.createTextNode(source);
    return element("a", children, { href: url.href, target: "_blank", rel: "noopener noreferrer" });
  }

  function inline(text) {
    const nodes = [];
    let rest = text;
    while (rest) {
      let first = null;
      for (const { pattern, node } of INLINE) {
        const match = pattern.exec(rest);
        if (match && (!first || match.index < first.match.index)) first = { match, node };
      }
      if (!first) break;
      if (first.match.index > 0) nodes.push(document.createTextNode(rest.slice(0, first.match.index)));
      nodes.push(first.node(first.match));
      rest = rest.slice(first.match.index + first.match[0].length);
    }
    if (rest) nodes.push(document.createTextNode(rest));
    return nodes;
  }

  const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
  const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
  const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
  const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
  const QUOTE = /^ {0,3}> ?/;
  const DELIMITER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

  const isTable = (lines, i) => lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && DELIMITER.test(lines[i + 1]);
  const startsBlock = (lines, i) => {
    const line = lines[i];
    return !line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) || isTable(lines, i);
  };

  // Splits text into the source lines of its blocks.
  function split(text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    const blocks = [];
    let i = 0;
    while (i < lines.length) {
      const start = i;
      const fence = FENCE.exec(lines[i]);
      if (!lines[i].trim()) {
        i += 1;
        continue;
      } else if (fence) {
        const end = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
        for (i += 1; i < lines.length && !end.test(lines[i]); ) i += 1;
        i += 1;
      } else if (HEADING.test(lines[i]) || RULE.test(lines[i])) {
        i += 1;
      } else if (QUOTE.test(lines[i])) {
        while (i < lines.length && (QUOTE.test(lines[i]) || !startsBlock(lines, i))) i += 1;
      } else if (ITEM.test(lines[i])) {
        // A list goes on over indented lines, over more items, and over blank lines before either.
        for (i += 1; i < lines.length; i += 1) {
          if (lines[i].trim()) {
            if (!ITEM.test(lines[i]) && !/^\s{2,}/.test(lines[i]) && startsBlock(lines, i)) break;
          } else {
            const next = lines.slice(i).find((line) => line.trim());
            if (!next || (!ITEM.test(next) && !/^\s{2,}/.test(next))) break;
          }
        }
      } else if (isTable(lines, i)) {
        for (i += 2; i < lines.length && lines[i].trim() && lines[i].includes("|"); ) i += 1;
      } else {
        for (i += 1; i < lines.length && !startsBlock(lines, i); ) i += 1;
      }
      blocks.push(lines.slice(start, i).join("\n"));
    }
    return blocks;
  }

  function code(source) {
    const lines = source.split("\n");
    const fence = FENCE.exec(lines[0]);
    const last = lines.at(-1).trim();
    const closed = lines.length > 1 && last.startsWith(fence[1]) && !last.replaceAll(fence[1][0], "");
    const text = lines.slice(1, closed ? -1 : undefined).join("\n");
    const copy = element("button", ["Copy"], { type: "button", "aria-label": "Copy code" });
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    });
    const head = element("div", [element("span", [fence[2]]), copy], { class: "head" });
    const pre = element("pre", [element("code", [text])], { tabindex: "0" });
    return element("div", [head, pre], { class: "code" });
  }

  function table(source) {
    const cells = (line) => {
      const trimmed = line.trim().replace(/^\||(?<!\\)\|$/g, "");
      return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
    };
    const [head, , ...rows] = source.split("\n");
    const row = (name, line) => element("tr", cells(line).map((cell) => element(name, inline(cell))));
    const body = element("tbody", rows.map((line) => row("td", line)));
    return element("div", [element("table", [element("thead", [row("th", head)]), body])], { class: "table", tabindex: "0" });
  }

  function list(source) {
    const lines = source.split("\n");
    const [, indent, marker] = ITEM.exec(lines[0]);
    const items = [];
    for (const line of lines) {
      const item = ITEM.exec(line);
      if (item && item[1].length <= indent.length + 1) {
        items.push({ width: line.length - item[3].length, lines: [item[3]] });
      } else {
        const { width, lines } = items.at(-1);
        lines.push(line.slice(Math.min(width, line.length - line.trimStart().length)));
      }
    }
    const ordered = /\d/.test(marker);
    const nodes = items.map(({ lines }) => {
      const blocks = split(lines.join("\n"));
      // The text of a tight item is not a paragraph.
      const children = blocks.flatMap((text, i) => (i === 0 && !startsBlock([text.split("\n")[0]], 0) ? inline(text) : [block(text)]));
      return element("li", children);
    });
    const start = parseInt(marker, 10);
    return element(ordered ? "ol" : "ul", nodes, ordered && start !== 1 ? { start } : {});
  }

  function block(source) {
    const first = source.split("\n", 1)[0];
    if (FENCE.test(first)) return code(source);
    const heading = HEADING.exec(first);
    if (heading) return element(`h${Math.min(6, heading[1].length + 2)}`, inline(heading[2]));
    if (RULE.test(first)) return element("hr");
    if (QUOTE.test(first)) {
      const inner = source.split("\n").map((line) => line.replace(QUOTE, "")).join("\n");
      return element("blockquote", split(inner).map(block));
    }
    if (ITEM.test(first)) return list(source);
    const lines = source.split("\n");
    if (isTable(lines, 0)) return table(source);
    return element("p", inline(source));
  }

  // Shows text in a node. Blocks that did not change since the last call are kept, so that a
  // streamed answer costs only its last block, and a selection in earlier ones stays.
  function render(node, text) {
    const blocks = split(text);
    const shown = node.markdownBlocks ?? [];
    let same = 0;
    while (same < blocks.length && blocks[same] === shown[same]) same += 1;
    while (node.childNodes.length > same) node.lastChild.remove();
    for (const source of blocks.slice(same)) node.append(block(source));
    node.markdownBlocks = blocks;
  }

  return { render };
})();
