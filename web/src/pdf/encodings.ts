// What the codes and the names of glyphs mean.

/** The texts of the 256 codes of an encoding by its name. */
export function baseEncoding(name: string | null): string[] {
  const bytes = Uint8Array.from({ length: 256 }, (_, code) => code);
  if (name === "WinAnsiEncoding") return [...new TextDecoder("windows-1252").decode(bytes)];
  if (name === "MacRomanEncoding") return [...new TextDecoder("macintosh").decode(bytes)];
  const codes = [...new TextDecoder("windows-1252").decode(bytes)].map((text, code) => (code < 0x7f ? text : ""));
  codes[0x27] = "’";
  codes[0x60] = "‘";
  [...STANDARD].forEach((text, index) => (codes[0xa1 + index] = text === "␀" ? "" : text));
  return codes;
}

/** The upper half of Adobe's standard encoding; ␀ for codes without a glyph. */
const STANDARD = "¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ␀–†‡·␀¶•‚„”»…‰␀¿␀`´ˆ˜¯˘˙¨␀˚¸␀˝˛ˇ—␀␀␀␀␀␀␀␀␀␀␀␀␀␀␀␀Æ␀ª␀␀␀␀ŁØŒº␀␀␀␀␀æ␀␀␀ı␀␀łøœß";

const ACCENTS: Record<string, string> = {
  grave: "\u0300",
  acute: "\u0301",
  circumflex: "\u0302",
  tilde: "\u0303",
  macron: "\u0304",
  breve: "\u0306",
  dotaccent: "\u0307",
  dieresis: "\u0308",
  ring: "\u030a",
  hungarumlaut: "\u030b",
  caron: "\u030c",
  commaaccent: "\u0327",
  cedilla: "\u0327",
  ogonek: "\u0328",
};
const ACCENTED = new RegExp(`^([A-Za-z])(${Object.keys(ACCENTS).join("|")})$`);

/** Names of glyphs, each followed by its text. */
const GLYPHS = new Map(
  `exclam ! quotedbl " numbersign # dollar $ percent % ampersand & quotesingle ' parenleft ( parenright )
asterisk * plus + comma , hyphen - period . slash / zero 0 one 1 two 2 three 3 four 4 five 5 six 6 seven 7 eight 8
nine 9 colon : semicolon ; less < equal = greater > question ? at @ bracketleft [ backslash \\ bracketright ]
asciicircum ^ underscore _ grave \` braceleft { bar | braceright } asciitilde ~ exclamdown ¡ cent ¢ sterling £
currency ¤ yen ¥ brokenbar ¦ section § dieresis ¨ copyright © ordfeminine ª guillemotleft « logicalnot ¬
registered ® macron ¯ degree ° plusminus ± twosuperior ² threesuperior ³ acute ´ mu µ paragraph ¶
periodcentered · cedilla ¸ onesuperior ¹ ordmasculine º guillemotright » onequarter ¼ onehalf ½ threequarters ¾
questiondown ¿ AE Æ Eth Ð multiply × Oslash Ø Thorn Þ germandbls ß ae æ eth ð divide ÷ oslash ø thorn þ
dotlessi ı dotlessj ȷ Dcroat Đ dcroat đ Hbar Ħ hbar ħ IJ Ĳ ij ĳ Lslash Ł lslash ł Eng Ŋ eng ŋ OE Œ oe œ
florin ƒ circumflex ˆ caron ˇ breve ˘ dotaccent ˙ ring ˚ ogonek ˛ tilde ˜ hungarumlaut ˝ endash – emdash —
quoteleft ‘ quoteright ’ quotesinglbase ‚ quotedblleft “ quotedblright ” quotedblbase „ dagger † daggerdbl ‡
bullet • ellipsis … perthousand ‰ guilsinglleft ‹ guilsinglright › fraction ⁄ Euro € trademark ™ minus −
arrowleft ← arrowup ↑ arrowright → arrowdown ↓ arrowboth ↔ arrowdblright ⇒ arrowdblleft ⇐ arrowdblboth ⇔
universal ∀ partialdiff ∂ existential ∃ emptyset ∅ gradient ∇ element ∈ notelement ∉ product ∏ summation ∑
asteriskmath ∗ radical √ proportional ∝ infinity ∞ angle ∠ logicaland ∧ logicalor ∨ intersection ∩ union ∪
integral ∫ therefore ∴ similar ∼ congruent ≅ approxequal ≈ notequal ≠ equivalence ≡ lessequal ≤ greaterequal ≥
propersubset ⊂ propersuperset ⊃ reflexsubset ⊆ reflexsuperset ⊇ circleplus ⊕ circlemultiply ⊗ perpendicular ⊥
dotmath ⋅ lozenge ◊ ff ff fi fi fl fl ffi ffi ffl ffl Alpha Α Beta Β Gamma Γ Delta Δ Epsilon Ε Zeta Ζ Eta Η
Theta Θ Iota Ι Kappa Κ Lambda Λ Mu Μ Nu Ν Xi Ξ Omicron Ο Pi Π Rho Ρ Sigma Σ Tau Τ Upsilon Υ Phi Φ Chi Χ Psi Ψ
Omega Ω alpha α beta β gamma γ delta δ epsilon ε epsilon1 ϵ zeta ζ eta η theta θ theta1 ϑ iota ι kappa κ
lambda λ nu ν xi ξ omicron ο pi π rho ρ rho1 ϱ sigma σ sigma1 ς tau τ upsilon υ phi φ phi1 ϕ chi χ psi ψ
omega ω omega1 ϖ`
    .split(/[ \n]+/)
    .reduce<[string, string][]>((pairs, word, index, words) => {
      if (index % 2 === 0) pairs.push([word, words[index + 1] ?? ""]);
      return pairs;
    }, []),
);
GLYPHS.set("space", " ");

/** The text of a glyph by its name; null if the name tells nothing. */
export function glyphText(name: string): string | null {
  const plain = name.split(".")[0] ?? "";
  if (!plain) return null;
  const known = GLYPHS.get(plain);
  if (known !== undefined) return known;
  if (/^[A-Za-z]$/.test(plain)) return plain;
  const [, letter, accent] = ACCENTED.exec(plain) ?? [];
  if (letter && accent) return `${letter}${ACCENTS[accent]}`.normalize("NFC");
  const units = /^uni((?:[\dA-F]{4})+)$/.exec(plain)?.[1]?.match(/.{4}/g);
  if (units) return String.fromCharCode(...units.map((unit) => parseInt(unit, 16)));
  const point = parseInt(/^u([\dA-F]{4,6})$/.exec(plain)?.[1] ?? "", 16);
  if (point <= 0x10ffff) return String.fromCodePoint(point);
  if (!plain.includes("_")) return null;
  const parts = plain.split("_").map(glyphText);
  return parts.includes(null) ? null : parts.join("");
}
