// From glyphs at places to lines of text.
import { readingOrder, runsLeft } from "./bidi";

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

interface Place {
  x: number;
  y: number;
}

/** Joins glyphs in the order in which the file has them, and breaks lines where their places do. */
export class Lines {
  private readonly lines: string[] = [];
  private line: string[] = [];
  /** A text from right to left is drawn from the left, so that the line is in the order in which it is seen. */
  private isSeen = false;
  private last: { begin: Place; end: Place; size: number; runsLeft: boolean } | null = null;

  /** Adds a text that begins at a place and goes to another one, in letters of this size. */
  add(text: string, from: Matrix, to: Matrix, size: number): void {
    const { last } = this;
    const isLeft = runsLeft(text);
    if (last && size > 0) {
      const length = Math.hypot(from[0], from[1]) || 1;
      const along = (a: Place, b: Place): number => ((b.x - a.x) * from[0] + (b.y - a.y) * from[1]) / length / size;
      const [begin, end] = [placeOf(from), placeOf(to)];
      const gap = along(last.end, begin);
      const across = ((begin.y - last.end.y) * from[0] - (begin.x - last.end.x) * from[1]) / length;
      const share = Math.abs(across) / Math.max(size, last.size);
      // Some files draw such letters one to the left of the other.
      const leftGap = isLeft && last.runsLeft && gap < 0 ? along(end, last.begin) : null;
      if (share > LINE) this.break(share > PARAGRAPH);
      else if (leftGap !== null && leftGap > -LINE && leftGap < COLUMN) this.space(leftGap);
      else if (gap < -1) this.break(false);
      else {
        this.space(gap);
        this.isSeen ||= isLeft && last.runsLeft;
      }
    }
    this.line.push(text);
    this.move(to, size, from, isLeft);
  }

  /** Goes to a place, as letters do. */
  move(to: Matrix, size: number, from = to, isLeft = false): void {
    this.last = { begin: placeOf(from), end: placeOf(to), size, runsLeft: isLeft };
  }

  text(): string {
    this.break(false);
    const text = this.lines.join("\n");
    return text
      .replace(/[^\S\n\t]+/g, " ")
      .replace(/ *\t */g, "\t")
      .replace(/[ \t]+$/gm, "")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }

  private space(gap: number): void {
    if (gap > COLUMN) this.line.push("\t");
    else if (gap > SPACE) this.line.push(" ");
  }

  private break(isParagraph: boolean): void {
    const line = this.line.join("");
    this.lines.push(this.isSeen ? readingOrder(line) : line, ...(isParagraph ? [""] : []));
    this.line = [];
    this.isSeen = false;
  }
}

const placeOf = (matrix: Matrix): Place => ({ x: matrix[4], y: matrix[5] });
