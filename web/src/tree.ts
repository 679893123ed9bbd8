// Conversations are trees: each message knows the one before it, and siblings are branches.
import type { Message } from "./conversation";

export type Messages = ReadonlyMap<string, Message>;

/** The messages from the first one to `head`. A parent that is missing ends the path. */
export function pathTo(messages: Messages, head: string | null): Message[] {
  const path: Message[] = [];
  const seen = new Set<string>();
  for (let id = head; id !== null && !seen.has(id);) {
    const message = messages.get(id);
    if (!message) break;
    seen.add(id);
    path.push(message);
    id = message.parent;
  }
  return path.reverse();
}

/** The branches at a message, itself among them, oldest first. */
export function siblings(messages: Messages, message: Message): Message[] {
  const found = [...messages.values()].filter((other) => other.parent === message.parent);
  return found.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/** The end of the newest branch below a message. */
export function leafBelow(messages: Messages, id: string): string {
  const newest = new Map<string, Message>();
  for (const message of messages.values()) {
    if (message.parent === null) continue;
    const known = newest.get(message.parent);
    if (!known || message.created >= known.created) newest.set(message.parent, message);
  }
  const seen = new Set<string>();
  let leaf = id;
  for (let child = newest.get(leaf); child && !seen.has(child.id); child = newest.get(leaf)) {
    seen.add(child.id);
    leaf = child.id;
  }
  return leaf;
}

/** A message and all below it. */
export function subtree(messages: Messages, id: string): string[] {
  const children = new Map<string, string[]>();
  for (const message of messages.values()) {
    if (message.parent === null) continue;
    children.set(message.parent, [...(children.get(message.parent) ?? []), message.id]);
  }
  const found = new Set<string>([id]);
  for (const member of found) {
    for (const child of children.get(member) ?? []) found.add(child);
  }
  return [...found];
}

/** The end of a branch that is left when `removed` are gone. */
export function headWithout(messages: Messages, head: string | null, removed: ReadonlySet<string>): string | null {
  const remaining = new Map([...messages].filter(([id]) => !removed.has(id)));
  const kept = pathTo(messages, head).filter((message) => !removed.has(message.id));
  const last = kept.at(-1);
  if (last) return leafBelow(remaining, last.id);
  const roots = [...remaining.values()].filter((message) => message.parent === null);
  const newest = roots.sort((a, b) => a.created - b.created).at(-1);
  return newest ? leafBelow(remaining, newest.id) : null;
}
