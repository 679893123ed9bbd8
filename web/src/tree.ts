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

/** The messages after each message, oldest first: more than one are branches. Those at the beginning are under null. */
export function successors(messages: Messages): Map<string | null, Message[]> {
  const found = new Map<string | null, Message[]>();
  for (const message of messages.values()) {
    const known = found.get(message.parent);
    if (known) known.push(message);
    else found.set(message.parent, [message]);
  }
  for (const list of found.values()) list.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  return found;
}

/** The end of the newest branch below a message. */
export function leafBelow(messages: Messages, id: string): string {
  const next = successors(messages);
  const seen = new Set([id]);
  let leaf = id;
  for (let child = next.get(leaf)?.at(-1); child && !seen.has(child.id); child = next.get(leaf)?.at(-1)) {
    seen.add(child.id);
    leaf = child.id;
  }
  return leaf;
}

/** A message and all below it. */
export function subtree(messages: Messages, id: string): string[] {
  const next = successors(messages);
  const found = new Set([id]);
  for (const member of found) for (const child of next.get(member) ?? []) found.add(child.id);
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
