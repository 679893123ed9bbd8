// The calls of an answer, and the questions that they ask a person.
import { allow, callRun, give, runCall } from "../calls";
import { button, h, icon } from "../dom";
import { toolOf } from "../tools";
import type { Call, Message } from "../conversation";

export class CallList {
  readonly element = h("div", { class: "calls" });
  private rows: { key: string; element: HTMLElement }[] = [];

  /** Shows the calls. Those of an open message have no results yet. */
  update(message: Message, isOpen: boolean): void {
    const calls = message.calls ?? [];
    const isOther = calls.length !== this.rows.length;
    // What a person types beside one call stays while another one changes.
    this.rows = calls.map((call, index) => {
      const key = JSON.stringify([
        call,
        isOpen,
        isOpen && callRun(message, index),
        isOpen && toolOf(call.name)?.server,
      ]);
      const row = this.rows[index];
      if (row?.key === key) return row;
      const element = h("div", {}, callView(call), isOpen && resultOf(message, call, index));
      if (!isOther) row?.element.replaceWith(element);
      return { key, element };
    });
    if (isOther) this.element.replaceChildren(...this.rows.map(({ element }) => element));
  }
}

function callView(call: Call): HTMLElement {
  let text = call.arguments;
  try {
    text = JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    // It is not complete yet: show what is there.
  }
  return h(
    "details",
    { class: "call", attributes: { open: true } },
    h("summary", {}, icon("tool"), h("span", { text: call.name || "…" })),
    h("pre", { attributes: { dir: "ltr", tabindex: 0 } }, h("code", { text })),
  );
}

function resultOf(message: Message, call: Call, index: number): HTMLElement {
  const run = callRun(message, index);
  const tool = toolOf(call.name);
  if (run?.state === "done") return h("p", { class: "call-state muted", text: "The result is there." });
  if (run?.state === "running") {
    return h(
      "div",
      { class: "results" },
      h(
        "p",
        { class: "call-state" },
        h("span", { class: "busy" }),
        `${call.name} runs on ${tool?.server ?? "its server"} …`,
      ),
      button("Stop the call", () => run.abort?.abort()),
    );
  }
  if (!tool) return resultForm(message, call, index);
  if (run) {
    return h(
      "div",
      { class: "results" },
      h("p", { class: "error", text: run.text }),
      button("Try again", () => void runCall(message, index)),
      button("Tell the model", () => give(message, index, `Error: ${run.text}`)),
    );
  }
  const always = h("input", { attributes: { type: "checkbox" } });
  return h(
    "div",
    { class: "results", attributes: { role: "group", "aria-label": `Question about ${call.name}` } },
    h("p", { class: "call-state", text: `Run ${tool.tool.name} on ${tool.server} with these arguments?` }),
    button(
      "Run",
      () => {
        allow(call.name, always.checked);
        void runCall(message, index);
      },
      "primary",
    ),
    button("Refuse", () => give(message, index, "The user refused this call.")),
    h("label", { class: "switch" }, always, h("span", { text: "Do not ask again until the page is closed" })),
  );
}

/** A person gives the result of a call whose tool is not known. */
function resultForm(message: Message, call: Call, index: number): HTMLElement {
  const label = `Result of ${call.name}`;
  const field = h("textarea", { attributes: { rows: 2, "aria-label": label, placeholder: label } });
  return h(
    "div",
    { class: "results" },
    field,
    button("Send result", () => give(message, index, field.value), "primary"),
  );
}

export function toolResult(message: Message): HTMLElement {
  return h(
    "details",
    { class: "call" },
    h("summary", {}, icon("tool"), h("span", { text: "Result" })),
    h("pre", { text: message.content, attributes: { dir: "auto", tabindex: 0 } }),
  );
}
