// System prompt and parameters of the conversation. Changes count at once.
import * as data from "../data/store";
import { store } from "../data/store";
import { saveSettings } from "../data/settings";
import { button, h } from "../dom";
import { models } from "../models";
import { toast } from "../notices";
import { type Field, firstProblem, SECTIONS } from "../params";
import type { Params } from "../conversation";
import { openDialog } from "./dialog";

export function openParameters(): void {
  const conversation = store.current;
  const params: Params = { ...conversation.params };
  const system = h("textarea", {
    attributes: { id: "system", rows: 4, dir: "auto", placeholder: "Instructions for the model" },
  });
  system.value = conversation.system ?? "";
  system.addEventListener("change", () => data.change(conversation, { system: system.value }));
  const changed = () => data.change(conversation, { params: { ...params } });
  const sections = SECTIONS.map((section, index) => {
    const fields = section.fields.map((field) => fieldView(field, params, changed));
    const isUsed = section.fields.some(({ name }) => params[name] !== undefined);
    return h(
      "details",
      { class: "section", attributes: { open: index < 2 || isUsed } },
      h("summary", { text: section.title }),
      h("div", { class: "fields" }, ...fields),
    );
  });
  const defaults = button("Use as default", () => {
    saveSettings({ system: system.value || undefined, params: { ...params } });
    toast("New conversations begin with these parameters.");
  });
  const reset = button("Reset", () => {
    data.change(conversation, { params: {}, system: "" });
    dialog.close();
    openParameters();
  });
  const dialog = openDialog(
    "Parameters of the conversation",
    [h("label", { class: "field wide" }, h("span", { text: "System prompt" }), system), ...sections],
    { isWide: true, actions: [reset, defaults, button("Done", () => dialog.close(), "primary")] },
  );
  dialog.addEventListener("close", () => {
    const problem = firstProblem(conversation.params);
    if (problem) toast(problem);
  });
}

function fieldView(field: Field, params: Params, changed: () => void): HTMLElement {
  const set = (value: Params[string] | undefined) => {
    if (value === undefined || value === "" || value === false) delete params[field.name];
    else params[field.name] = value;
    changed();
  };
  const value = params[field.name];
  const problem = h("small", { class: "problem", attributes: { role: "status" } });
  const help = field.help && h("small", { class: "muted", text: field.help });
  const name = field.name;
  if (field.kind === "switch") {
    const box = h("input", { attributes: { type: "checkbox", name, checked: value === true } });
    box.addEventListener("change", () => set(box.checked));
    return h("label", { class: "field switch" }, box, h("span", { text: field.label }));
  }
  if (field.kind === "choice") {
    const select = h(
      "select",
      { attributes: { name } },
      ...(field.choices ?? []).map(([key, label]) => h("option", { text: label, attributes: { value: key } })),
    );
    select.value = String(value ?? "");
    select.addEventListener("change", () => set(select.value));
    return h("label", { class: "field" }, h("span", { text: field.label }), select, help);
  }
  if (field.kind === "number" || field.kind === "integer") {
    const input = h("input", {
      attributes: {
        type: "number",
        name,
        min: field.min,
        max: field.max,
        step: field.kind === "integer" ? 1 : "any",
        placeholder: placeholder(name),
      },
    });
    input.value = String(value ?? "");
    input.addEventListener("input", () => {
      problem.textContent = input.validationMessage;
      input.setAttribute("aria-invalid", String(!input.validity.valid));
      if (input.validity.valid) set(input.value === "" ? undefined : Number(input.value));
    });
    return h("label", { class: "field" }, h("span", { text: field.label }), input, help, problem);
  }
  const isCode = field.kind === "json" || field.kind === "text";
  const text = h("textarea", {
    class: isCode ? "code-field" : "",
    attributes: {
      name,
      rows: field.kind === "words" ? 1 : isCode ? 5 : 2,
      spellcheck: "false",
      dir: isCode ? "ltr" : "auto",
    },
  });
  text.value = String(value ?? "");
  const check = () => {
    const found = field.check?.(text.value) ?? null;
    problem.textContent = found ?? "";
    text.setAttribute("aria-invalid", String(found !== null));
  };
  text.addEventListener("input", () => {
    check();
    set(text.value);
  });
  check();
  return h("label", { class: "field wide" }, h("span", { text: field.label }), text, help, problem);
}

/** The default of the server, where it tells it. */
function placeholder(name: string): string {
  const value = models.props?.defaults[name];
  if (typeof value !== "number") return "default";
  return String(Math.round(value * 1000) / 1000);
}
