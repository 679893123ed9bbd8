import { h, icon } from "../dom";
import type { IconName } from "../icons";

export interface Item {
  label: string;
  icon?: IconName;
  /** A second line. */
  note?: string;
  isChecked?: boolean;
  isDangerous?: boolean;
  run: () => void;
}

let close: (() => void) | null = null;

/** Opens a menu below a button, with the keys of menus. */
export function openMenu(button: HTMLElement, items: (Item | HTMLElement)[], label: string): void {
  close?.();
  const menu = h("div", { class: "menu", attributes: { role: "menu", "aria-label": label } });
  for (const item of items) {
    if (item instanceof HTMLElement) menu.append(item);
    else menu.append(row(item));
  }
  const choices = [...menu.querySelectorAll<HTMLElement>("[role^=menuitem]")];
  const onPointer = (event: Event) => {
    if (!menu.contains(event.target as Node) && !button.contains(event.target as Node)) close?.();
  };
  close = () => {
    menu.remove();
    document.removeEventListener("pointerdown", onPointer);
    button.setAttribute("aria-expanded", "false");
    close = null;
  };
  menu.addEventListener("keydown", (event) => {
    const at = choices.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: choices.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      choices[(next + choices.length) % choices.length]?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close?.();
      button.focus();
    }
  });
  document.addEventListener("pointerdown", onPointer);
  // Within a landmark, for those who move by them.
  (button.closest("nav, main") ?? document.body).append(menu);
  button.setAttribute("aria-expanded", "true");
  place(menu, button.getBoundingClientRect());
  choices[0]?.focus();
}

function row(item: Item): HTMLElement {
  const isChoice = item.isChecked !== undefined;
  return h(
    "button",
    {
      class: item.isDangerous ? "menu-item danger" : "menu-item",
      attributes: {
        type: "button",
        role: isChoice ? "menuitemradio" : "menuitem",
        "aria-checked": isChoice ? String(item.isChecked) : undefined,
        tabindex: -1,
      },
      on: {
        click: () => {
          close?.();
          item.run();
        },
      },
    },
    item.icon ? icon(item.icon) : isChoice && (item.isChecked ? icon("check") : h("span", { class: "icon" })),
    h("span", { class: "menu-text" }, h("span", { text: item.label }), item.note && h("small", { text: item.note })),
  );
}

function place(menu: HTMLElement, anchor: DOMRect): void {
  const { width, height } = menu.getBoundingClientRect();
  const isLeft = anchor.left + width < innerWidth - 8;
  menu.style.left = `${Math.max(8, isLeft ? anchor.left : anchor.right - width)}px`;
  const isBelow = anchor.bottom + height + 12 < innerHeight;
  menu.style.top = `${Math.max(8, isBelow ? anchor.bottom + 4 : anchor.top - height - 4)}px`;
}
