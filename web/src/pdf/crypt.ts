// Files that are encrypted without a password, which many programs write to forbid printing. Those
// with a password of the reader are refused.
import { cbc } from "@noble/ciphers/aes.js";
import { md5 } from "@noble/hashes/legacy.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
import { bytesOf, Name, PdfProblem, type Dict, type Value } from "./objects";

type Bytes = Uint8Array;

/** What the dictionary says of encryption, with its references followed. */
export interface Encryption {
  dict: Dict;
  /** The parameters of the filter of streams, in newer files. */
  filter: Dict | null;
  /** The first identifier of the file. */
  id: string;
}

/** Decrypts the bytes of an object. */
export type Decrypt = (bytes: Bytes, id: number, generation: number) => Bytes;

/** What fills passwords up to 32 bytes. */
const PADDING = bytesOf(
  "\x28\xbf\x4e\x5e\x4e\x75\x8a\x41\x64\x00\x4e\x56\xff\xfa\x01\x08\x2e\x2e\x00\xb6\xd0\x68\x3e\x80\x2f\x0c\xa9\xfe\x64\x53\x69\x7a",
);
const PASSWORD = "is encrypted with a password, without which this page cannot read it";
const UNKNOWN = "is encrypted in a way that this page does not know";

/** Finds the key of a file that needs no password. */
export function decryption(encryption: Encryption): Decrypt {
  try {
    return decryptionOf(encryption);
  } catch (error) {
    // Ciphers refuse values of wrong lengths.
    throw error instanceof PdfProblem ? error : new PdfProblem(UNKNOWN);
  }
}

function decryptionOf({ dict, filter, id }: Encryption): Decrypt {
  const version = number(dict.get("V"));
  const method = version >= 4 ? name(filter?.get("CFM")) : "V2";
  if (name(dict.get("Filter")) !== "Standard" || version < 1 || version > 5) throw new PdfProblem(UNKNOWN);
  if (!filter && version >= 4) return (bytes) => bytes;
  if (version === 5) {
    const key = key256(dict);
    return (bytes) => aes(key, bytes);
  }
  if (method !== "V2" && method !== "AESV2") throw new PdfProblem(UNKNOWN);
  const bits = method === "AESV2" ? 128 : version === 1 ? 40 : number(dict.get("Length")) || 40;
  const short = key128(dict, id, bits);
  // Keys of crypt filters have 16 bytes, and zeros fill shorter ones.
  const key = version === 4 ? joined(short, new Uint8Array(16 - short.length)) : short;
  return (bytes, object, generation) => {
    const salt = method === "AESV2" ? "sAlT" : "";
    const place = [object, object >> 8, object >> 16, generation, generation >> 8].map((part) => part & 0xff);
    const own = md5(joined(key, Uint8Array.from(place), bytesOf(salt))).subarray(0, Math.min(key.length + 5, 16));
    return method === "AESV2" ? aes(own, bytes) : rc4(own, bytes);
  };
}

/** The key of older files, of up to 128 bits. */
function key128(dict: Dict, id: string, bits: number): Bytes {
  const revision = number(dict.get("R"));
  const length = Math.min(Math.max(bits >> 3, 5), 16);
  const owner = text(dict.get("O")).subarray(0, 32);
  const permissions = new Uint8Array(4);
  new DataView(permissions.buffer).setInt32(0, number(dict.get("P")) | 0, true);
  const open = revision >= 4 && dict.get("EncryptMetadata") === false ? bytesOf("\xff\xff\xff\xff") : new Uint8Array();
  let key: Bytes = md5(joined(PADDING, owner, permissions, bytesOf(id), open));
  if (revision >= 3) for (let round = 0; round < 50; round++) key = md5(key.subarray(0, length));
  key = key.subarray(0, length);
  // The file has the padding under the key of the right password.
  let proof = revision >= 3 ? md5(joined(PADDING, bytesOf(id))) : PADDING;
  for (let round = 0; round < (revision >= 3 ? 20 : 1); round++) {
    proof = rc4(
      key.map((byte) => byte ^ round),
      proof,
    );
  }
  if (!isSame(proof.subarray(0, 16), text(dict.get("U")).subarray(0, 16))) throw new PdfProblem(PASSWORD);
  return key;
}

/** The key of newer files, of 256 bits. */
function key256(dict: Dict): Bytes {
  const user = text(dict.get("U"));
  const hash = number(dict.get("R")) >= 6 ? hardened : (salt: Bytes): Bytes => sha256(salt);
  if (!isSame(hash(user.subarray(32, 40)), user.subarray(0, 32))) throw new PdfProblem(PASSWORD);
  const wrapped = text(dict.get("UE")).subarray(0, 32);
  return cbc(hash(user.subarray(40, 48)), new Uint8Array(16), { disablePadding: true }).decrypt(wrapped);
}

/** The hash of PDF 2.0 for the empty password: at least 64 rounds, until the last byte allows the end. */
function hardened(salt: Bytes): Bytes {
  let key: Bytes = sha256(salt);
  for (let round = 0; ; round++) {
    const repeated = new Uint8Array(64 * key.length);
    for (let at = 0; at < repeated.length; at += key.length) repeated.set(key, at);
    const mixed = cbc(key.subarray(0, 16), key.subarray(16, 32), { disablePadding: true }).encrypt(repeated);
    const sum = mixed.subarray(0, 16).reduce((total, byte) => total + byte, 0);
    key = ([sha256, sha384, sha512][sum % 3] ?? sha256)(mixed);
    if (round >= 63 && (mixed.at(-1) ?? 0) <= round - 31) return key.subarray(0, 32);
  }
}

/** The first block is the start value. A text whose end is damaged stays as it is. */
function aes(key: Bytes, bytes: Bytes): Bytes {
  const length = 16 * Math.floor(bytes.length / 16);
  if (length < 32) return new Uint8Array();
  const cipher = cbc(key, bytes.slice(0, 16), { disablePadding: true });
  const plain = cipher.decrypt(bytes.slice(16, length));
  const padding = plain.at(-1) ?? 0;
  return padding >= 1 && padding <= 16 ? plain.subarray(0, plain.length - padding) : plain;
}

function rc4(key: Bytes, bytes: Bytes): Bytes {
  const state = Uint8Array.from({ length: 256 }, (_, index) => index);
  const swap = (a: number, b: number): void => {
    [state[a], state[b]] = [state[b] ?? 0, state[a] ?? 0];
  };
  const at = (index: number): number => state[index & 0xff] ?? 0;
  for (let i = 0, j = 0; i < 256; i++) {
    j = (j + at(i) + (key[i % key.length] ?? 0)) & 0xff;
    swap(i, j);
  }
  let [i, j] = [0, 0];
  return bytes.map((byte) => {
    i = (i + 1) & 0xff;
    j = (j + at(i)) & 0xff;
    swap(i, j);
    return byte ^ at(at(i) + at(j));
  });
}

const number = (value: Value | undefined): number => (typeof value === "number" ? value : 0);
const name = (value: Value | undefined): string | null => (value instanceof Name ? value.text : null);
const text = (value: Value | undefined): Bytes => bytesOf(typeof value === "string" ? value : "");
const isSame = (a: Bytes, b: Bytes): boolean => a.length === b.length && a.every((byte, index) => byte === b[index]);

function joined(...parts: Bytes[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
