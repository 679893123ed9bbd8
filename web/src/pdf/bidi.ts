// Text that runs from right to left, which files draw from left to right as it is seen.

const RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const LEFT = /\p{L}/u;
const DIGIT = /\p{Nd}/u;

type Kind = "right" | "left" | "digit" | null;

export const runsLeft = (text: string): boolean => RIGHT.test(text) && !DIGIT.test(text);

/** The order in which a line is read, from the order in which it is seen. */
export function readingOrder(line: string): string {
  const characters = line.match(/\P{M}\p{M}*/gu) ?? [];
  const kinds = characters.map((character): Kind => {
    if (DIGIT.test(character)) return "digit";
    return RIGHT.test(character) ? "right" : LEFT.test(character) ? "left" : null;
  });
  const count = (kind: string): number => kinds.filter((other) => other === kind).length;
  const base = count("right") > count("left") ? 1 : 0;
  const isStrong = (kind: Kind): boolean => kind === "right" || kind === "left";
  const [strongBefore, strongAfter] = neighbours(kinds, isStrong);
  // As in Unicode's algorithm: 1 runs to the left, 2 to the right within such a run.
  const levels = kinds.map((kind, at) => {
    if (kind === "right") return 1;
    if (kind === "left") return 2 * base;
    const isWithin = strongBefore[at] === "right" && strongAfter[at] === "right";
    return kind === "digit" ? (base || isWithin ? 2 : 0) : null;
  });
  const [levelBefore, levelAfter] = neighbours(levels, (level) => level !== null);
  let items = characters.map((text, at) => {
    const around = levelBefore[at] === levelAfter[at] ? levelBefore[at] : null;
    return { text, level: levels[at] ?? around ?? base };
  });
  for (const least of [1, 2]) items = withReversed(items, ({ level }) => level >= least);
  return items.map(({ text }) => text).join("");
}

/** For each item the nearest one of a kind before it, and after it; the item itself if it is one. */
function neighbours<T>(items: T[], isOf: (item: T) => boolean): [(T | undefined)[], (T | undefined)[]] {
  const scan = (list: T[]): (T | undefined)[] => {
    let last: T | undefined;
    return list.map((item) => (last = isOf(item) ? item : last));
  };
  return [scan(items), scan([...items].reverse()).reverse()];
}

/** Reverses each run of items of a kind. */
function withReversed<T>(items: T[], isOf: (item: T) => boolean): T[] {
  const made: T[] = [];
  let run: T[] = [];
  const take = (): void => {
    for (let at = run.length - 1; at >= 0; at--) made.push(run[at] as T);
    run = [];
  };
  for (const item of items) {
    if (isOf(item)) run.push(item);
    else {
      take();
      made.push(item);
    }
  }
  take();
  return made;
}
