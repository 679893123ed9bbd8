import { paths, type IconName } from "./icons";

type Child = Node | string | null | undefined | false;

interface Options {
  class?: string;
  text?: string;
  attributes?: Record<string, string | number | boolean | undefined>;
  on?: Record<string, (event: Event) => void>;
}

/** Makes an element. An attribute that is false or undefined is left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  if (options.class) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  for (const [key, value] of Object.entries(options.attributes ?? {})) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, String(value));
  }
  for (const [event, handler] of Object.entries(options.on ?? {})) {
    element.addEventListener(event, handler);
  }
  element.append(...children.filter((child): child is Node | string => Boolean(child)));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

export function icon(name: IconName): SVGElement {
  const image = svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true", class: "icon" });
  for (const d of paths[name]) image.append(svg("path", { d }));
  return image;
}

/** A button with an icon, whose label is a tooltip and for screen readers. */
export function iconButton(name: IconName, label: string, action: () => void): HTMLButtonElement {
  return h(
    "button",
    { class: "icon-button", attributes: { type: "button", "aria-label": label, title: label }, on: { click: action } },
    icon(name),
  );
}

export function button(label: string, action: () => void, kind = ""): HTMLButtonElement {
  return h("button", { class: kind, text: label, attributes: { type: "button" }, on: { click: action } });
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element as T;
}

/** Text goes to the clipboard, also where a page over plain HTTP has no clipboard API. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = h("textarea", { attributes: { "aria-hidden": "true", readonly: true } });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** A copy button that says when it has copied. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const made = iconButton("copy", label, () => {
    void copyText(text()).then(() => {
      made.replaceChildren(icon("check"));
      setTimeout(() => made.replaceChildren(icon("copy")), 1500);
    });
  });
  return made;
}

export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { attributes: { href: url, download: name } }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
