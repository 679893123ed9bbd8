// The conversations, and the one that is shown.
import { notice } from "../notices";
import { headWithout, pathTo, subtree } from "../tree";
import type { Conversation, Message } from "../conversation";
import { emit } from "./bus";
import * as db from "./db";
import { newId } from "./id";
import { settings } from "./settings";

export const store = {
  conversations: new Map<string, Conversation>(),
  current: fresh(),
  messages: new Map<string, Message>(),
};

/** Messages that are being answered in this tab: they are newer than those of the storage. */
const live = new Map<string, Message>();

const tabs = "BroadcastChannel" in window ? new BroadcastChannel("rocmforge") : null;

/** A conversation that is not stored until it has a message. */
export function fresh(): Conversation {
  const now = Date.now();
  return {
    id: newId(),
    title: "",
    created: now,
    updated: now,
    head: null,
    system: settings.system,
    params: { ...settings.params },
  };
}

export const isStored = (conversation: Conversation): boolean => store.conversations.has(conversation.id);

export const path = (): Message[] => pathTo(store.messages, store.current.head);

/** Conversations that the storage did not take. */
const unsaved = new Set<string>();

/** Runs a change of the storage. Its failure is told, and the page goes on without it. */
async function stored(work: Promise<unknown>, conversation: string): Promise<void> {
  try {
    if ((await work) === false) return;
    unsaved.delete(conversation);
    if (!unsaved.size) notice("storage", null);
    tabs?.postMessage(conversation);
  } catch (error) {
    unsaved.add(conversation);
    const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
    notice(
      "storage",
      isFull
        ? "The storage of the browser is full, so new messages are lost when this tab is closed. Export or delete conversations."
        : `The browser does not store the conversations: ${error instanceof Error ? error.message : error}`,
    );
  }
}

/** Opens the storage. Returns the answers that were being computed when this tab left the page. */
export async function start(): Promise<Message[]> {
  let left: Message[] = [];
  try {
    await reloadConversations();
    left = await takeKept();
  } catch (error) {
    notice("storage", `The browser does not open its storage: ${error instanceof Error ? error.message : error}`);
  }
  tabs?.addEventListener("message", (event: MessageEvent<string>) => void otherTabChanged(event.data));
  return left;
}

/** Reads the list. The shown conversation stays the same object, since others hold it. */
async function reloadConversations(): Promise<Conversation | undefined> {
  const all = await db.allConversations();
  const { current } = store;
  const conversations = new Map(all.map((conversation) => [conversation.id, conversation]));
  const known = conversations.get(current.id);
  if (known) {
    Object.assign(current, known, { head: current.head });
    conversations.set(current.id, current);
  }
  // Those that are not stored are not lost while the page is open.
  for (const id of unsaved) {
    const kept = store.conversations.get(id);
    if (kept) conversations.set(id, kept);
  }
  store.conversations = conversations;
  emit("conversations");
  return known;
}

async function otherTabChanged(id: string): Promise<void> {
  const { current } = store;
  const known = await reloadConversations();
  if (current.id !== id || store.current !== current) return;
  if (!known) return open(null);
  const messages = await loadMessages(id);
  if (store.current !== current) return;
  store.messages = messages;
  // The branch that is shown stays, unless the other tab went on with it or deleted it.
  const isKept = current.head === null || messages.has(current.head);
  const isContinued = pathTo(messages, known.head).some((message) => message.id === current.head);
  if (!isKept || isContinued) current.head = known.head;
  emit("opened");
}

/** The messages of a conversation, which need not be shown. */
export function messagesIn(conversation: Conversation): Promise<ReadonlyMap<string, Message>> {
  return store.current === conversation ? Promise.resolve(store.messages) : loadMessages(conversation.id);
}

async function loadMessages(id: string): Promise<Map<string, Message>> {
  const messages = new Map((await db.messagesOf(id)).map((message) => [message.id, message]));
  for (const message of live.values()) if (message.conversation === id) messages.set(message.id, message);
  await markInterrupted([...messages.values()]);
  return messages;
}

/** An answer that no tab computes any more was interrupted, by a reload for example. */
async function markInterrupted(messages: Message[]): Promise<void> {
  const open = messages.filter((message) => message.state === "streaming" && !live.has(message.id));
  if (!open.length) return;
  const held = (await navigator.locks?.query())?.held?.map((lock) => lock.name) ?? [];
  for (const message of open) {
    if (held.includes(lockName(message.id))) void awaitEnd(message);
    else message.state = "interrupted";
  }
}

const awaited = new Set<string>();

/** Reads the messages again when another tab has ended an answer, or is gone: also this page before a reload. */
async function awaitEnd({ id, conversation }: Message): Promise<void> {
  if (awaited.has(id)) return;
  awaited.add(id);
  await navigator.locks.request(lockName(id), () => undefined);
  awaited.delete(id);
  const { current } = store;
  if (current.id !== conversation) return;
  const messages = await loadMessages(conversation);
  if (store.current !== current) return;
  store.messages = messages;
  emit("opened");
}

export const lockName = (message: string): string => `rocmforge.${message}`;

/** Shows a conversation, a new one for null. */
export async function open(id: string | null): Promise<void> {
  const conversation = (id !== null && store.conversations.get(id)) || fresh();
  let messages = new Map<string, Message>();
  if (isStored(conversation)) {
    try {
      messages = await loadMessages(conversation.id);
    } catch (error) {
      notice("storage", `The messages could not be read: ${error instanceof Error ? error.message : error}`);
    }
  }
  store.current = conversation;
  store.messages = messages;
  emit("opened");
  emit("conversations");
}

/** Adds a message at the end of a conversation, or as a branch of it, and shows that branch. */
export function add(conversation: Conversation, message: Message): void {
  const isNew = !isStored(conversation) || unsaved.has(conversation.id);
  conversation.head = message.id;
  conversation.updated = Date.now();
  if (store.current === conversation) store.messages.set(message.id, message);
  if (isNew) {
    store.conversations.set(conversation.id, conversation);
    const all = store.current === conversation ? [...store.messages.values()] : [message];
    void stored(db.addConversation({ ...conversation }, all), conversation.id);
  } else {
    const { head, updated, title } = conversation;
    void stored(db.update(conversation.id, { head, updated, title }, [message]), conversation.id);
  }
  emit("conversations");
  if (store.current === conversation) emit("opened");
}

const LEFT = "rocmforge.left";

/** Keeps what is not written yet while the page is left: IndexedDB may not finish then. */
export function keep(): void {
  try {
    if (live.size) sessionStorage.setItem(LEFT, JSON.stringify([...live.values()]));
  } catch {
    // The part that was saved last is in the database.
  }
}

async function takeKept(): Promise<Message[]> {
  const text = sessionStorage.getItem(LEFT);
  sessionStorage.removeItem(LEFT);
  const all = text ? (JSON.parse(text) as Message[]) : [];
  const left = all.filter(({ conversation }) => store.conversations.has(conversation));
  for (const message of left) await db.update(message.conversation, {}, [message]);
  return left;
}

/** Writes a message. */
export function saveMessage(message: Message): Promise<void> {
  return stored(db.update(message.conversation, {}, [message]), message.conversation);
}

export function setLive(message: Message, isLive: boolean): void {
  if (isLive) live.set(message.id, message);
  else live.delete(message.id);
}

/** Changes fields of a conversation. */
export function change(conversation: Conversation, fields: Partial<Conversation>): void {
  Object.assign(conversation, fields);
  if (isStored(conversation)) void stored(db.update(conversation.id, fields, []), conversation.id);
  emit("conversations");
}

/** Shows the branch that the conversation has as its head. */
export function shownAgain(): void {
  emit("opened");
}

export function removeMessage(message: Message): void {
  const { current, messages } = store;
  const removed = subtree(messages, message.id);
  const head = headWithout(messages, current.head, new Set(removed));
  for (const id of removed) messages.delete(id);
  current.head = head;
  void stored(db.deleteMessages(current.id, head, removed), current.id);
  emit("opened");
}

export function removeConversation(id: string): void {
  store.conversations.delete(id);
  unsaved.delete(id);
  void stored(db.deleteConversation(id), id);
  if (store.current.id === id) void open(null);
  emit("conversations");
}

export async function importAll(conversations: { conversation: Conversation; messages: Message[] }[]): Promise<void> {
  for (const { conversation, messages } of conversations) {
    store.conversations.set(conversation.id, conversation);
    await stored(db.addConversation(conversation, messages), conversation.id);
  }
  emit("conversations");
}
