// The messages of the shown branch.
import { on } from "../data/bus";
import { path, store } from "../data/store";
import { byId, h, iconButton } from "../dom";
import { models } from "../models";
import { runIn } from "../runs";
import { successors } from "../tree";
import type { Message } from "../conversation";
import { write } from "./composer";
import { MessageView } from "./message";

const SUGGESTIONS = [
  "Tell me a short story about a fox.",
  "Explain how a suspension bridge carries its load.",
  "Write a Python function that merges two sorted lists.",
];

let views = new Map<string, MessageView>();
let shown = "";
let isDue = false;
const changed = new Map<string, Message>();
/** False once the reader has left the end. */
let follows = true;

export function start(): void {
  const messages = byId("messages");
  const end = iconButton("end", "To the end", () => toEnd());
  end.hidden = true;
  byId("to-end").append(end);
  messages.addEventListener("scroll", () => {
    follows = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 60;
    end.hidden = follows;
  });
  // Long answers and images get their height later.
  new ResizeObserver(() => follows && toEnd()).observe(byId("thread"));
  on("opened", show);
  on("message", (message) => {
    changed.set(message.id, message);
    schedule();
  });
  on("tools", () => {
    for (const message of path()) changed.set(message.id, message);
    schedule();
  });
  on("runs", showBusy);
  on("models", () => {
    if (!views.size) show();
  });
  // The countdown of a busy server, and the time of loading.
  setInterval(() => {
    const run = runIn(store.current.id);
    if (run && run.running.tokens === 0) {
      changed.set(run.message.id, run.message);
      schedule();
    }
  }, 500);
}

function schedule(): void {
  if (isDue) return;
  isDue = true;
  // A hidden tab has no frames; what arrived there is shown with the next change.
  requestAnimationFrame(() => {
    isDue = false;
    for (const message of changed.values()) views.get(message.id)?.update(message);
    changed.clear();
    if (follows) toEnd();
  });
}

/** While an answer is computed, messages cannot be changed. */
function showBusy(): void {
  byId("thread").classList.toggle("busy-thread", Boolean(runIn(store.current.id)));
}

function toEnd(): void {
  const messages = byId("messages");
  messages.scrollTop = messages.scrollHeight;
}

function show(): void {
  const messages = path();
  const isOther = shown !== store.current.id;
  shown = store.current.id;
  const kept = isOther ? new Map<string, MessageView>() : views;
  const next = successors(store.messages);
  views = new Map();
  for (const message of messages) {
    const view = kept.get(message.id) ?? new MessageView(message);
    if (kept.has(message.id)) view.update(message);
    view.setPlace(next.get(message.parent) ?? [message], message.id === store.current.head);
    views.set(message.id, view);
  }
  showBusy();
  byId("chat").classList.toggle("empty", messages.length === 0);
  const elements = [...views.values()].map(({ element }) => element);
  arrange(byId("thread"), messages.length ? elements : [greeting()]);
  document.title = store.current.title ? `${store.current.title} – ROCmForge` : "ROCmForge";
  if (isOther || follows || runIn(store.current.id)) {
    follows = true;
    toEnd();
  }
}

/** Puts elements in place and leaves those alone that are there. */
function arrange(parent: HTMLElement, elements: HTMLElement[]): void {
  const wanted = new Set<Element>(elements);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}

function greeting(): HTMLElement {
  const { info } = models;
  const chips = SUGGESTIONS.map((text) =>
    h("button", { class: "chip", text, attributes: { type: "button" }, on: { click: () => write(text) } }),
  );
  return h(
    "div",
    { class: "greeting" },
    h("h2", { text: "What shall we talk about?" }),
    h("p", {
      text: info
        ? `${info.id} runs on this server. Conversations stay in this browser.`
        : "Conversations stay in this browser.",
    }),
    h("div", { class: "chips" }, ...chips),
  );
}

/** Edits the last message of the person. */
export function editLast(): void {
  const last = path()
    .reverse()
    .find(({ role }) => role === "user");
  if (last && !runIn(store.current.id)) views.get(last.id)?.edit();
}
