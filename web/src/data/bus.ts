import type { Message } from "../conversation";

/** What happens in the page, with what the listeners get. */
export interface Events {
  /** The list of conversations changed. */
  conversations: undefined;
  /** Another conversation, or another branch, is shown. */
  opened: undefined;
  /** A message of the shown conversation changed. */
  message: Message;
  /** An answer begins or ends, in any conversation. */
  runs: undefined;
  /** An answer ended, in any conversation. */
  ended: Message;
  /** A server of tools, or its tools, changed. */
  tools: undefined;
  models: undefined;
  connection: undefined;
}

type Listener<T> = (detail: T) => void;

const listeners = new Map<keyof Events, Set<Listener<never>>>();

/** Listens, until the function that it returns is called. */
export function on<K extends keyof Events>(name: K, listener: Listener<Events[K]>): () => void {
  const known = listeners.get(name) ?? new Set();
  known.add(listener as Listener<never>);
  listeners.set(name, known);
  return () => known.delete(listener as Listener<never>);
}

export function emit<K extends keyof Events>(name: K, ...detail: Events[K] extends undefined ? [] : [Events[K]]): void {
  for (const listener of listeners.get(name) ?? []) (listener as Listener<unknown>)(detail[0]);
}
