import assert from "node:assert/strict";
import { test } from "node:test";
import { createCipheriv, createHash } from "node:crypto";
import { deflateSync } from "node:zlib";
import { readingOrder } from "../../src/pdf/bidi";
import { PdfProblem, readPdf } from "../../src/pdf/read";

const latin = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "latin1"));
const compressed = (text: string): string => deflateSync(Buffer.from(text, "latin1")).toString("latin1");
const stream = (fields: string, data: string): string =>
  `<< ${fields} /Length ${data.length} >>\nstream\n${data}\nendstream`;

/** A file of numbered objects, without the table of their places. */
const pdf = (objects: string[], trailer = "/Root 1 0 R"): string =>
  `%PDF-1.7\n${objects.map((object, index) => `${index + 1} 0 obj\n${object}\nendobj\n`).join("")}trailer\n<< ${trailer} >>\n`;

/** A page that draws `content` with a font. */
const page = (content: string, font = "/Subtype /Type1 /Encoding /WinAnsiEncoding", more: string[] = []): string =>
  pdf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Resources << /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >> >>",
    "<< /Type /Page /Parent 2 0 R /Contents [4 0 R] >>",
    content,
    `<< /Type /Font ${font} >>`,
    ...more,
  ]);

const textOf = async (file: string): Promise<string> => (await readPdf(latin(file))).text;
const drawn = (operators: string): string => stream("", `BT /F1 10 Tf ${operators} ET`);

test("lines, words and columns follow the places of the letters", async () => {
  const text = await textOf(
    page(
      drawn(
        "50 700 Td (Two) Tj 20 0 Td (words) Tj 0 -12 Td (Next l\\351ne\\)) Tj 200 0 Td (Column) Tj " +
          "-200 -40 Td [(Par) 10 (agraph) -400 (end)] TJ 12 TL T* (Last) Tj (-) '",
      ),
    ),
  );
  assert.equal(text, "Two words\nNext léne)\tColumn\n\nParagraph end\nLast\n-");
});

test("streams are decoded, also those that say a wrong length", async () => {
  const content = "BT /F1 10 Tf (Packed) Tj ET";
  const flate = stream("/Filter /FlateDecode", compressed(content));
  assert.equal(await textOf(page(flate)), "Packed");
  assert.equal(await textOf(page(flate.replace(/Length \d+/, "Length 3"))), "Packed");
  const hex = `${Buffer.from(content).toString("hex")}>`;
  assert.equal(await textOf(page(stream("/Filter [/ASCIIHexDecode]", hex))), "Packed");
  // "BT" clears, shows its letters and ends: 9 bits each.
  const codes = [256, ...Buffer.from(content), 257].map((code) => code.toString(2).padStart(9, "0")).join("");
  const lzw = (codes.match(/.{1,8}/g) ?? []).map((bits) => String.fromCharCode(parseInt(bits.padEnd(8, "0"), 2)));
  assert.equal(await textOf(page(stream("/Filter /LZWDecode", lzw.join("")))), "Packed");
  const base85 = "6<#'\\7PQ#?0Ha>,+=L&p@r#Xd.3MT)+@T6~>";
  assert.equal(await textOf(page(stream("/Filter /ASCII85Decode", base85))), "Packed");
});

test("objects may be in a stream, and a later one replaces an earlier one", async () => {
  const inner = ["<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>", "<< /Type /Font /Subtype /Type1 >>"];
  const head = `3 0 5 ${inner[0]?.length ?? 0} `;
  const file = pdf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Resources << /Font << /F1 5 0 R >> >> >>",
    "<< /Type /Page /Contents 99 0 R >>",
    drawn("(Found) Tj"),
    "null",
    stream(`/Type /ObjStm /N 2 /First ${head.length} /Filter /FlateDecode`, compressed(head + inner.join(""))),
  ]);
  assert.equal(await textOf(file), "Found");
});

test("fonts tell their letters by maps, names and encodings", async () => {
  const map =
    "1 begincodespacerange <0000> <FFFF> endcodespacerange\n1 beginbfchar <0001> <D83DDE00> endbfchar\n" +
    "2 beginbfrange <0010> <0012> <0061> <0020> <0021> [<00660069> <00E9>] endbfrange";
  const composite = "/Subtype /Type0 /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [<< /DW 500 >>]";
  const content = drawn("<00010010001100120020 0021> Tj");
  assert.equal(await textOf(page(content, composite, [stream("", map)])), "😀abcfié");
  const named = "/Subtype /Type1 /Encoding << /Differences [1 /Aacute /f_i /uni20AC /alpha.alt /fl /quoteright] >>";
  assert.equal(await textOf(page(drawn("<01020304050641> Tj"), named)), "Áfi€αfl’A");
  const japanese = "/Subtype /Type0 /Encoding /90ms-RKSJ-H /DescendantFonts [<< /DW 1000 >>]";
  assert.equal(await textOf(page(drawn("<93fa967b41> Tj"), japanese)), "日本A");
  const unknown = "/Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< >>]";
  assert.equal((await readPdf(latin(page(drawn("<00010002> Tj"), unknown)))).unread, 1);
});

test("text from right to left is read in its order", async () => {
  const reversed = (text: string): string => [...text].reverse().join("");
  for (const [seen, read] of [
    [reversed("שלום עולם"), "שלום עולם"],
    [`42 ${reversed("רק")}`, `${"רק"} 42`],
    [`English ${reversed("שלום עולם")} words 42.`, "English שלום עולם words 42."],
    [`.English ${reversed("זה הטקסט עם")}`, "זה הטקסט עם English."],
    [`${reversed("בית")} 1.5 ${reversed("זה הגדול")}`, "זה הגדול 1.5 בית"],
  ] as const) {
    assert.equal(readingOrder(seen), read);
  }
  const long = `${"ש ".repeat(200_000)}abc`;
  assert.equal(readingOrder(long).length, long.length);
  // Letters drawn from the left, and one to the left of the other.
  const hex = (text: string): string => [...text].map((c) => c.charCodeAt(0).toString(16).padStart(4, "0")).join("");
  const font = "/Subtype /Type0 /Encoding /UniKS-UCS2-H /DescendantFonts [<< /DW 500 >>]";
  assert.equal(await textOf(page(drawn(`<${hex(reversed("שלום עולם"))}> Tj`), font)), "שלום עולם");
  const steps = [..."שלוםעולם"].map((c, i) => `1 0 0 1 ${200 - 5 * i - (i > 3 ? 4 : 0)} 0 Tm <${hex(c)}> Tj`).join(" ");
  assert.equal(await textOf(page(drawn(steps), font)), "שלום עולם");
});

test("marks with a text of their own, forms and pictures are read", async () => {
  const actual = drawn("/Span << /ActualText (ab) >> BDC (x) Tj (y) Tj EMC (c) Tj");
  assert.equal(await textOf(page(actual)), "abc");
  const form = stream("/Subtype /Form", "BT /F1 9 Tf (inside) Tj ET");
  assert.equal(await textOf(page(stream("", "/X Do"), undefined, [form])), "inside");
  // A form that draws itself.
  assert.equal(await textOf(page(stream("", "/X Do"), undefined, [stream("/Subtype /Form", "/X Do")])), "");
  const picture = stream("/Subtype /Image /Filter /DCTDecode", "\xff\xd8jpeg");
  const { text, pictures } = await readPdf(latin(page(stream("", "/X Do"), undefined, [picture])));
  assert.equal(text, "");
  assert.equal(Buffer.from(pictures[0] ?? []).toString("latin1"), "\xff\xd8jpeg");
  const inline = stream("", "BI /W 1 ID \x00 (EIx) EI BT /F1 9 Tf (after) Tj ET");
  assert.equal(await textOf(page(inline)), "after");
});

test("files that are encrypted without a password are read", async () => {
  const cipher = (key: Buffer, start: Buffer, data: Buffer, pads: boolean): Buffer => {
    const made = createCipheriv("aes-256-cbc", key, start).setAutoPadding(pads);
    return Buffer.concat([made.update(data), made.final()]);
  };
  const sha256 = (data: Buffer): Buffer => createHash("sha256").update(data).digest();
  const bytes = (length: number, seed: number): Buffer =>
    Buffer.from(Array.from({ length }, (_, index) => (seed * 31 + index * 7) & 0xff));
  const key = bytes(32, 1);
  const [proof, wrap] = [bytes(8, 2), bytes(8, 3)];
  const start = bytes(16, 4);
  const drawing = Buffer.concat([start, cipher(key, start, Buffer.from("BT /F1 9 Tf (secret) Tj ET"), true)]);
  const file = (user: Buffer): string =>
    page(stream("", drawing.toString("latin1")), undefined, [
      `<< /Filter /Standard /V 5 /R 5 /U <${user.toString("hex")}> /UE <${cipher(sha256(wrap), Buffer.alloc(16), key, false).toString("hex")}>` +
        " /CF << /StdCF << /CFM /AESV3 >> >> /StmF /StdCF >>",
    ]).replace("/Root 1 0 R", "/Root 1 0 R /Encrypt 6 0 R");
  assert.equal(await textOf(file(Buffer.concat([sha256(proof), proof, wrap]))), "secret");
  const other = Buffer.concat([sha256(Buffer.concat([Buffer.from("password"), proof])), proof, wrap]);
  await assert.rejects(readPdf(latin(file(other))), /is encrypted with a password/);
});

test("what cannot be read is refused with a reason", async () => {
  const refused = async (file: string, reason: RegExp): Promise<void> => {
    await assert.rejects(readPdf(latin(file)), (error) => error instanceof PdfProblem && reason.test(error.message));
  };
  await refused("hello", /is not a PDF file/);
  await refused(pdf(["<< /Type /Catalog /Pages 2 0 R >>"], "/Root 1 0 R /Encrypt 2 0 R"), /is encrypted/);
  await refused(pdf(["null"]), /has no pages/);
  await refused(pdf([`${"[".repeat(500)}`]), /nested too deeply/);
  const bomb = compressed("\0".repeat(70_000_000));
  await refused(page(stream("/Filter /FlateDecode", bomb)), /too large/);
});

test("broken files end with a text or a reason", async () => {
  const map = "1 beginbfrange <00> <FFFFFFFF> <0061> endbfrange 1 beginbfchar <41> <0042> endbfchar";
  const whole = page(drawn("(Text) Tj 5 5 Td [(A) -5 <42>] TJ /X Do"), "/Subtype /Type1 /ToUnicode 6 0 R", [
    stream("/Filter /FlateDecode", compressed(map)),
  ]);
  let seed = 1;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed % below;
  };
  for (let round = 0; round < 2000; round++) {
    const bytes = latin(whole);
    for (let changes = 1 + random(8); changes > 0; changes--) bytes[random(bytes.length)] = random(256);
    try {
      await readPdf(round % 3 ? bytes : bytes.subarray(0, random(bytes.length)));
    } catch (error) {
      assert.ok(error instanceof PdfProblem, `${round}: ${error}`);
    }
  }
});
