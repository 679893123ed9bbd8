// The tools of MCP servers in the settings, and how many there are, beside the message field.
import { on } from "../data/bus";
import { byId, h, icon } from "../dom";
import * as tools from "../tools";
import type { ToolServer } from "../tools";

export function start(openPreferences: () => void): void {
  const chip = h(
    "button",
    { class: "tool-count", attributes: { type: "button", hidden: true }, on: { click: openPreferences } },
    icon("tool"),
  );
  const number = h("span", { attributes: { "aria-hidden": "true" } });
  chip.append(number);
  byId("composer-actions").append(chip);
  on("tools", () => {
    const failed = tools.servers().filter(({ state }) => state === "failed").length;
    const text = `${tools.count()} tools${failed ? ", a server failed" : ""}`;
    chip.hidden = !tools.isOn();
    chip.title = text;
    chip.setAttribute("aria-label", text);
    number.textContent = failed ? `${tools.count()} !` : String(tools.count());
  });
}

/** The part of the settings. */
export function toolsSection(): HTMLElement[] {
  const list = h("div", { class: "tool-servers" });
  const none = h("p", { class: "muted", text: "This server names none. Whoever runs it adds them with --mcp URL." });
  const shown = new Map<string, { element: HTMLElement; update: (server: ToolServer) => void }>();
  const show = (): void => {
    const servers = tools.servers();
    for (const server of servers) {
      const row = shown.get(server.url) ?? serverRow(server.url);
      shown.set(server.url, row);
      row.update(server);
    }
    const rows = servers.map(({ url }) => shown.get(url)?.element).filter((row) => row !== undefined);
    if (!rows.length) rows.push(none);
    // A row that stays keeps what is typed there.
    if (rows.some((row, index) => list.children[index] !== row)) list.replaceChildren(...rows);
    list.hidden = !tools.isOn();
  };
  const toggle = h("input", {
    attributes: { type: "checkbox", name: "tools", checked: tools.isOn() },
    on: { change: () => tools.turnOn(toggle.checked) },
  });
  // The settings are made anew each time they are opened.
  const forget = on("tools", () => (list.isConnected ? show() : forget()));
  show();
  return [
    h("h3", { text: "Tools" }),
    h("label", { class: "field switch" }, toggle, h("span", { text: "Offer the tools of MCP servers to the model" })),
    h("p", { class: "muted", text: "Each call is shown, and runs after you agree. Its result goes to the model." }),
    list,
  ];
}

function serverRow(url: string): { element: HTMLElement; update: (server: ToolServer) => void } {
  const toggle = h("input", {
    attributes: { type: "checkbox", checked: tools.isServerOn(url) },
    on: { change: () => tools.turnServerOn(url, toggle.checked) },
  });
  const token = h("input", {
    attributes: {
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Token, if it wants one",
      "aria-label": `Token for ${url}`,
    },
    on: { change: () => tools.setToken(url, token.value) },
  });
  token.value = tools.tokenOf(url);
  const state = h("p", { class: "muted", attributes: { role: "status" } });
  const names = h("ul", { class: "tool-names" });
  const element = h(
    "section",
    { attributes: { "aria-label": url } },
    h("label", { class: "field switch" }, toggle, h("span", { text: url, attributes: { dir: "ltr" } })),
    token,
    state,
    names,
  );
  const update = (server: ToolServer): void => {
    toggle.checked = tools.isServerOn(url);
    state.textContent = {
      off: "Not connected",
      connecting: "Connecting …",
      ready: `${server.name}: ${server.tools.length === 1 ? "one tool" : `${server.tools.length} tools`}`,
      failed: server.error ?? "Failed",
    }[server.state];
    state.className = server.state === "failed" ? "error" : "muted";
    names.replaceChildren(
      ...server.tools.map(({ name, description }) =>
        h("li", { attributes: { title: description } }, h("code", { text: name }), ` ${firstLine(description)}`),
      ),
    );
  };
  return { element, update };
}

const firstLine = (text = ""): string => text.trim().split("\n")[0] ?? "";
