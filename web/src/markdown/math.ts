import temml from "temml";

/** Longer formulas stay as they are. */
const LONGEST = 10_000;

/** Shows a formula as MathML, which needs no fonts of its own. Text that is no TeX stays text. */
export function showFormula(tex: string, isBlock: boolean, place: HTMLElement): void {
  if (tex.length > LONGEST) {
    place.textContent = tex;
    return;
  }
  try {
    temml.render(tex, place, {
      displayMode: isBlock,
      throwOnError: true,
      trust: false,
      maxExpand: 200,
      maxSize: [20, 20],
      annotate: true,
    });
  } catch {
    place.replaceChildren(document.createTextNode(tex));
    place.classList.add("tex");
  }
}
