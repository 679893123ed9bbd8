// IndexedDB: one record per conversation and one per message, so that two tabs that add messages to
// one conversation never overwrite each other's.
import type { Conversation, Message } from "../conversation";

const NAME = "rocmforge";

let opening: Promise<IDBDatabase> | null = null;

function database(): Promise<IDBDatabase> {
  opening ??= new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      const messages = request.result.createObjectStore("messages", { keyPath: "id" });
      messages.createIndex("conversation", "conversation");
    };
    request.onsuccess = () => {
      const { result } = request;
      // Another tab has a newer page.
      result.onversionchange = () => result.close();
      result.onclose = () => (opening = null);
      resolve(result);
    };
    request.onerror = () => reject(request.error);
  });
  opening.catch(() => (opening = null));
  return opening;
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function change(work: (conversations: IDBObjectStore, messages: IDBObjectStore) => void): Promise<void> {
  const db = await database();
  const transaction = db.transaction(["conversations", "messages"], "readwrite");
  const done = new Promise<void>((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new DOMException("aborted", "AbortError"));
    transaction.onerror = () => reject(transaction.error);
  });
  work(transaction.objectStore("conversations"), transaction.objectStore("messages"));
  await done;
}

export async function allConversations(): Promise<Conversation[]> {
  const db = await database();
  return result(db.transaction("conversations").objectStore("conversations").getAll());
}

export async function messagesOf(conversation: string): Promise<Message[]> {
  const db = await database();
  const index = db.transaction("messages").objectStore("messages").index("conversation");
  return result(index.getAll(conversation));
}

export function addConversation(conversation: Conversation, messages: Message[]): Promise<void> {
  return change((conversations, all) => {
    conversations.put(conversation);
    for (const message of messages) all.put(message);
  });
}

/**
 * Writes messages, and fields of their conversation. A conversation that was deleted, also by another
 * tab, stays deleted: then nothing is written, and the result is false.
 */
export async function update(id: string, fields: Partial<Conversation>, written: Message[]): Promise<boolean> {
  let isWritten = false;
  await change((conversations, messages) => {
    const request = conversations.get(id);
    request.onsuccess = () => {
      if (!request.result) return;
      conversations.put({ ...(request.result as Conversation), ...fields });
      for (const message of written) messages.put(message);
      isWritten = true;
    };
  });
  return isWritten;
}

export function deleteMessages(id: string, head: string | null, removed: string[]): Promise<void> {
  return change((conversations, messages) => {
    for (const message of removed) messages.delete(message);
    const request = conversations.get(id);
    request.onsuccess = () => {
      if (request.result) conversations.put({ ...(request.result as Conversation), head });
    };
  });
}

export function deleteConversation(id: string): Promise<void> {
  return change((conversations, messages) => {
    conversations.delete(id);
    const request = messages.index("conversation").openKeyCursor(IDBKeyRange.only(id));
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return;
      messages.delete(cursor.primaryKey);
      cursor.continue();
    };
  });
}

/** Conversations with a text in their messages. */
export async function conversationsWith(text: string): Promise<Set<string>> {
  const wanted = text.toLocaleLowerCase();
  const found = new Set<string>();
  const db = await database();
  const store = db.transaction("messages").objectStore("messages");
  await new Promise<void>((resolve, reject) => {
    const request = store.openCursor();
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return resolve();
      const message = cursor.value as Message;
      if (message.content.toLocaleLowerCase().includes(wanted)) found.add(message.conversation);
      cursor.continue();
    };
  });
  return found;
}
