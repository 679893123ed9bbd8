// From glyphs at places to lines of text.

/** A transformation of the plane, as PDF writes it: a b c d e f. */
export type Matrix = readonly [number, number, number, number, number, number];

export const IDENTITY: Matrix = [1, 0, 0, 1, 0, 0];

/** Does `first`, and then `second`. */
export function times(first: Matrix, second: Matrix): Matrix {
  const [a, b, c, d, e, f] = first;
  const [g, h, i, j, k, l] = second;
  return [a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + l];
}

/** Shares of the size of the letters. */
const [SPACE, COLUMN, LINE, PARAGRAPH] = [0.18, 3, 0.5, 1.9];

/** Joins glyphs in the order in which the file has them, and breaks lines where their places do. */
export class Lines {
  private readonly parts: string[] = [];
  private end: { x: number; y: number; size: number } | null = null;

  /** Adds a text that begins at a place and goes to another one, in letters of this size. */
  add(text: string, from: Matrix, to: Matrix, size: number): void {
    const length = Math.hypot(from[0], from[1]) || 1;
    const [ux, uy] = [from[0] / length, from[1] / length];
    if (this.end && size > 0) {
      const [dx, dy] = [from[4] - this.end.x, from[5] - this.end.y];
      const along = (dx * ux + dy * uy) / size;
      const across = Math.abs(dy * ux - dx * uy) / Math.max(size, this.end.size);
      if (across > LINE) this.push(across > PARAGRAPH ? "\n\n" : "\n");
      else if (along < -1) this.push("\n");
      else if (along > COLUMN) this.push("\t");
      else if (along > SPACE) this.push(" ");
    }
    this.push(text);
    this.move(to, size);
  }

  /** Goes to a place, as letters do. */
  move(to: Matrix, size: number): void {
    this.end = { x: to[4], y: to[5], size };
  }

  text(): string {
    const text = this.parts.join("");
    return text
      .replace(/[^\S\n\t]+/g, " ")
      .replace(/ *\t */g, "\t")
      .replace(/[ \t]+$/gm, "")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }

  private push(text: string): void {
    if (text) this.parts.push(text);
  }
}
