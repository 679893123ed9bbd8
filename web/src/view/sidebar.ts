import { on } from "../data/bus";
import * as data from "../data/store";
import { store } from "../data/store";
import * as db from "../data/db";
import { saveSettings, settings } from "../data/settings";
import { byId, download, h, icon, iconButton } from "../dom";
import { runIn, stop } from "../runs";
import { fileName, toJson, toMarkdown } from "../transfer";
import type { Conversation } from "../conversation";
import { confirmed, openDialog } from "./dialog";
import { openMenu } from "./menu";

/** Conversations whose messages have the searched text. */
let found: Set<string> | null = null;
let searches = 0;

export function start(openConversation: (id: string | null) => void): void {
  byId("new").prepend(icon("plus"));
  byId("new").addEventListener("click", () => openConversation(null));
  byId("open-server").prepend(icon("chart"));
  byId("open-preferences").prepend(icon("gear"));
  byId("sidebar-close").append(iconButton("sidebar", "Hide conversations", () => show(false)));
  byId("sidebar-open").append(iconButton("sidebar", "Show conversations", () => show(true)));
  byId("backdrop").addEventListener("click", () => show(false));
  document.body.classList.toggle("without-sidebar", settings.hidesSidebar === true);
  byId("search").addEventListener("input", () => void search());
  const list = byId("conversations");
  list.addEventListener("keydown", moveInList);
  const render = () => list.replaceChildren(...groups().map((group) => groupView(group, openConversation)));
  let isDue = false;
  const renderSoon = () => {
    if (isDue) return;
    isDue = true;
    queueMicrotask(() => {
      isDue = false;
      const focused = list.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.id : null;
      render();
      if (focused) list.querySelector<HTMLElement>(`.open[data-id="${focused}"]`)?.focus();
    });
  };
  on("conversations", renderSoon);
  on("runs", renderSoon);

  async function search(): Promise<void> {
    const text = byId<HTMLInputElement>("search").value.trim();
    const number = ++searches;
    // Not for each letter of somebody who types on.
    await new Promise((resolve) => setTimeout(resolve, 120));
    if (number !== searches) return;
    const matches = text ? await db.conversationsWith(text).catch(() => new Set<string>()) : null;
    if (number !== searches) return;
    for (const conversation of text ? store.conversations.values() : []) {
      if (conversation.title.toLocaleLowerCase().includes(text.toLocaleLowerCase())) matches?.add(conversation.id);
    }
    found = matches;
    render();
  }
}

const isPhone = (): boolean => matchMedia("(max-width: 47.9rem)").matches;

export function show(isShown: boolean): void {
  if (isPhone()) document.body.classList.toggle("with-sidebar", isShown);
  else {
    document.body.classList.toggle("without-sidebar", !isShown);
    saveSettings({ hidesSidebar: !isShown });
  }
  const place = byId(isShown ? "sidebar-close" : "sidebar-open");
  place.querySelector("button")?.focus();
}

export function toggle(): void {
  show(
    isPhone() ? !document.body.classList.contains("with-sidebar") : document.body.classList.contains("without-sidebar"),
  );
}

export function focusSearch(): void {
  show(true);
  byId("search").focus();
}

interface Group {
  title: string;
  conversations: Conversation[];
}

function groups(): Group[] {
  const all = [...store.conversations.values()].filter(({ id }) => !found || found.has(id));
  all.sort((a, b) => b.updated - a.updated);
  const today = new Date().setHours(0, 0, 0, 0);
  const day = 24 * 3600 * 1000;
  const title = ({ pinned, updated }: Conversation): string => {
    if (pinned) return "Pinned";
    if (updated >= today) return "Today";
    if (updated >= today - day) return "Yesterday";
    return updated >= today - 7 * day ? "Last week" : "Older";
  };
  return ["Pinned", "Today", "Yesterday", "Last week", "Older"]
    .map((name) => ({ title: name, conversations: all.filter((conversation) => title(conversation) === name) }))
    .filter(({ conversations }) => conversations.length > 0);
}

function groupView({ title, conversations }: Group, openConversation: (id: string) => void): HTMLElement {
  const rows = conversations.map((conversation) => rowView(conversation, openConversation));
  return h("section", { attributes: { "aria-label": title } }, h("h2", { text: title }), h("ul", {}, ...rows));
}

function rowView(conversation: Conversation, openConversation: (id: string) => void): HTMLElement {
  const { id, title } = conversation;
  const isAnswering = Boolean(runIn(id));
  const open = h(
    "button",
    {
      class: "open",
      attributes: {
        type: "button",
        "data-id": id,
        title,
        dir: "auto",
        "aria-current": id === store.current.id ? "true" : undefined,
      },
      on: { click: () => openConversation(id), dblclick: () => rename(conversation) },
    },
    isAnswering && h("span", { class: "busy", attributes: { role: "img", "aria-label": "Answering" } }),
    title || "Conversation",
  );
  const more = iconButton("more", `Actions for ${title}`, () =>
    openMenu(
      more,
      [
        ...(isAnswering ? [{ label: "Stop the answer", icon: "stop" as const, run: () => stop(id) }] : []),
        { label: "Rename", icon: "edit", run: () => rename(conversation) },
        {
          label: conversation.pinned ? "Unpin" : "Pin",
          icon: "pin",
          run: () => data.change(conversation, { pinned: !conversation.pinned }),
        },
        { label: "Export as Markdown", icon: "file", run: () => void exportOne(conversation, "md") },
        { label: "Export as JSON", icon: "code", run: () => void exportOne(conversation, "json") },
        { label: "Delete", icon: "trash", isDangerous: true, run: () => void remove(conversation) },
      ],
      `Actions for ${title}`,
    ),
  );
  more.setAttribute("aria-haspopup", "menu");
  return h("li", {}, open, more);
}

function moveInList(event: KeyboardEvent): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const rows = [...byId("conversations").querySelectorAll<HTMLElement>(".open")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  event.preventDefault();
  rows[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
}

export function rename(conversation: Conversation): void {
  const field = h("input", { attributes: { id: "rename", value: conversation.title, maxlength: 200, dir: "auto" } });
  const save = () => {
    const title = field.value.trim();
    if (title) data.change(conversation, { title });
    dialog.close();
  };
  const form = h(
    "form",
    {
      on: {
        submit: (event) => {
          event.preventDefault();
          save();
        },
      },
    },
    h("label", { text: "Title", attributes: { for: "rename" } }),
    field,
  );
  const dialog = openDialog("Rename the conversation", [form], {
    actions: [
      h("button", { text: "Cancel", attributes: { type: "button" }, on: { click: () => dialog.close() } }),
      h("button", { text: "Save", class: "primary", attributes: { type: "button" }, on: { click: save } }),
    ],
  });
  field.select();
}

export async function remove(conversation: Conversation): Promise<void> {
  const isSure = await confirmed(
    "Delete the conversation?",
    `“${conversation.title}” and its messages will be lost.`,
    "Delete",
  );
  if (!isSure) return;
  runIn(conversation.id)?.abort.abort();
  data.removeConversation(conversation.id);
}

async function exportOne(conversation: Conversation, ending: "md" | "json"): Promise<void> {
  const stored = { conversation, messages: await db.messagesOf(conversation.id) };
  const text = ending === "md" ? toMarkdown(stored) : toJson([stored]);
  download(fileName(conversation.title, ending), ending === "md" ? "text/markdown" : "application/json", text);
}
