// The part of the server's page that downloads models by name. It is made once, because the page
// around it is drawn anew every two seconds and a field would lose what was typed.
import { check } from "../connection";
import { h } from "../dom";
import { pull, type PullLine } from "../net/pull";

const GIB = 2 ** 30;

const field = h("input", {
  attributes: {
    name: "pull",
    required: true,
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    placeholder: "qwen3:8b or Qwen/Qwen3-8B-GGUF:Q4_K_M",
    "aria-label": "Name of the model to download",
  },
});
const list = h("ul", { class: "downloads" });
const running = new Set<string>();

/** The form and the list of downloads. */
export const downloads = h(
  "section",
  {},
  h("h3", { text: "Download a model" }),
  h(
    "form",
    {
      class: "pull",
      on: {
        submit: (event) => {
          event.preventDefault();
          const name = field.value.trim();
          if (!name || running.has(name)) return;
          field.value = "";
          void start(name);
        },
      },
    },
    field,
    h("button", { text: "Download", attributes: { type: "submit" } }),
  ),
  list,
);

async function start(name: string): Promise<void> {
  const text = h("span", { text: "looking for it …", attributes: { role: "status" } });
  const bar = h("progress", { attributes: { max: 1, "aria-label": `Download of ${name}` } });
  const row = h("li", {}, h("strong", { text: name }), text, bar);
  list.append(row);
  running.add(name);
  try {
    await pull(name, (line) => {
      const { value, note } = describe(line);
      if (value !== null) bar.value = value;
      text.textContent = note;
    });
    row.replaceChildren(h("strong", { text: name }), h("span", { text: "is ready", attributes: { role: "status" } }));
    void check();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    row.replaceChildren(
      h("strong", { text: name }),
      h("span", { class: "error", text: reason, attributes: { role: "alert" } }),
    );
  }
  running.delete(name);
}

/** The part that is there, from 0 to 1, and what a person reads of it. */
export function describe({ status = "", total, completed }: PullLine): { value: number | null; note: string } {
  if (!total || completed === undefined) return { value: null, note: status };
  const size = `${(completed / GIB).toFixed(2)} of ${(total / GIB).toFixed(2)} GiB`;
  return { value: completed / total, note: size };
}
