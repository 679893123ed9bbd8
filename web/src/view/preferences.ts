import { check } from "../connection";
import * as data from "../data/store";
import { store } from "../data/store";
import * as db from "../data/db";
import { saveSettings, settings, showTheme } from "../data/settings";
import { button, download, h } from "../dom";
import { notice, toast } from "../notices";
import { SHORTCUTS } from "../shortcuts";
import * as tools from "../tools";
import { fromJson, fromMarkdown, toJson } from "../transfer";
import { confirmed, openDialog } from "./dialog";
import { toolsSection } from "./tools";

export function openPreferences(): void {
  const theme = h(
    "select",
    { attributes: { name: "theme" } },
    ...[
      ["", "of the system"],
      ["light", "light"],
      ["dark", "dark"],
    ].map(([value, text]) => h("option", { text, attributes: { value } })),
  );
  theme.value = settings.theme ?? "";
  theme.addEventListener("change", () => {
    saveSettings({ theme: (theme.value || undefined) as "light" | "dark" | undefined });
    showTheme();
  });
  const key = h("input", {
    attributes: { type: "password", name: "apiKey", autocomplete: "off", spellcheck: "false" },
  });
  key.value = settings.apiKey ?? "";
  const form = h(
    "form",
    {
      on: {
        submit: (event) => {
          event.preventDefault();
          dialog.close();
        },
      },
    },
    h(
      "div",
      { class: "fields" },
      h("label", { class: "field" }, h("span", { text: "Theme" }), theme),
      h(
        "label",
        { class: "field" },
        h("span", { text: "API key" }),
        key,
        h("small", { class: "muted", text: "Only if the server asks for one." }),
      ),
    ),
  );
  const picker = h("input", {
    attributes: {
      type: "file",
      accept: ".json,.md,.markdown",
      multiple: true,
      hidden: true,
      "aria-label": "File to import",
    },
  });
  picker.addEventListener("change", () => void importFiles([...(picker.files ?? [])]));
  const keys = h(
    "table",
    { class: "keys" },
    h(
      "tbody",
      {},
      ...SHORTCUTS.map(({ keys: text, does }) => h("tr", {}, h("td", {}, h("kbd", { text })), h("td", { text: does }))),
    ),
  );
  const dialog = openDialog(
    "Settings",
    [
      form,
      ...toolsSection(),
      h("h3", { text: "Conversations" }),
      h("p", { class: "muted", text: "They are stored in this browser only." }),
      h(
        "div",
        { class: "row" },
        button("Export all", () => void exportAll()),
        button("Import", () => picker.click()),
        button("Delete all", () => void removeAll(dialog), "danger"),
        picker,
      ),
      h("h3", { text: "Keys" }),
      keys,
    ],
    { actions: [button("Save", () => dialog.close(), "primary")] },
  );
  dialog.addEventListener("close", () => {
    if (key.value === (settings.apiKey ?? "")) return;
    saveSettings({ apiKey: key.value || undefined });
    notice("server", null);
    void check();
    void tools.start();
  });
}

async function exportAll(): Promise<void> {
  const all = await Promise.all(
    [...store.conversations.values()].map(async (conversation) => ({
      conversation,
      messages: await db.messagesOf(conversation.id),
    })),
  );
  download(`conversations-${new Date().toISOString().slice(0, 10)}.json`, "application/json", toJson(all));
}

async function importFiles(files: File[]): Promise<void> {
  for (const file of files) {
    try {
      const text = await file.text();
      const imported = /\.(?:md|markdown)$/i.test(file.name) ? [fromMarkdown(text)] : fromJson(text);
      await data.importAll(imported);
      toast(
        `${file.name}: ${imported.length === 1 ? "one conversation" : `${imported.length} conversations`} imported.`,
      );
    } catch (error) {
      toast(`${file.name} was not imported: ${error instanceof Error ? error.message : error}.`);
    }
  }
}

async function removeAll(dialog: HTMLDialogElement): Promise<void> {
  const count = store.conversations.size;
  if (
    !count ||
    !(await confirmed(
      "Delete all conversations?",
      `All ${count} conversations of this browser will be lost.`,
      "Delete all",
    ))
  )
    return;
  for (const id of [...store.conversations.keys()]) data.removeConversation(id);
  dialog.close();
}
