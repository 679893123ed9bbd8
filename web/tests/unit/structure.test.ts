import assert from "node:assert/strict";
import { test } from "node:test";
import { firstProblem } from "../../src/params";
import { checkGrammar, checkJson, checkSchema, checkTools } from "../../src/structure";

test("mistakes in JSON have their place", () => {
  assert.equal(checkJson(""), null);
  assert.equal(checkJson('{"a": 1}'), null);
  assert.match(checkJson('{\n  "a": x}') ?? "", /^line 2, column 8: /);
  assert.equal(checkJson('{"a":'), "not complete");
  assert.equal(checkJson("[1]"), "expected an object");
});

test("schemas are checked through their parts", () => {
  assert.equal(
    checkSchema(
      '{"type":["string","null"],"properties":{"a":{"items":{"type":"integer"}},"b":true},"required":["a"],"$defs":{"x":{}},"anyOf":[{}]}',
    ),
    null,
  );
  assert.match(
    checkSchema('{"properties":{"a":{"type":"strin"}}}') ?? "",
    /the schema\.a has the unknown type "strin"/,
  );
  assert.match(checkSchema('{"required":"a"}') ?? "", /required/);
  assert.match(checkSchema('{"anyOf":[]}') ?? "", /anyOf/);
  assert.match(checkSchema('{"items":3}') ?? "", /items is no object/);
  assert.match(checkSchema('{"pattern":"("}') ?? "", /regular expression/);
});

test("tools are checked", () => {
  assert.equal(checkTools('[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]'), null);
  assert.match(checkTools("{}") ?? "", /list/);
  assert.match(checkTools('[{"function":{}}]') ?? "", /tool 1/);
});

test("grammars are checked", () => {
  for (const right of [
    "",
    'root ::= "a" | [b-z]+ # x\n',
    'root ::= (item ",")* item\nitem ::=\n  "x"{1,3}\n  | [^"\\n]',
    "root ::= a\na ::= .",
    "start: x\nx: /a/",
  ]) {
    assert.equal(checkGrammar(right), null, right);
  }
  assert.equal(checkGrammar('a ::= "x"'), "there is no rule root");
  assert.equal(checkGrammar('root ::= "x'), "line 1: a text without its closing quote");
  assert.equal(checkGrammar('root ::= "x"\n  (b\nb ::= "y"'), "line 3: a parenthesis is not closed before b");
  assert.equal(checkGrammar("root ::= b)"), "line 1: ) without (");
  assert.equal(checkGrammar('root ::= "a"\n b'), "line 2: there is no rule b");
  assert.equal(checkGrammar("root ::= * x"), "line 1: * has nothing to repeat");
  assert.equal(checkGrammar('"x"'), "line 1: expected NAME ::=");
  assert.equal(checkGrammar("root ::= [a"), "line 1: a set without ]");
});

test("a request is not sent with a mistake", () => {
  assert.equal(firstProblem({ temperature: 1, json_schema: "{}" }), null);
  assert.match(firstProblem({ json_schema: "{" }) ?? "", /^JSON schema: /);
  assert.match(firstProblem({ json_schema: "{}", grammar: 'root ::= "a"' }) ?? "", /both/);
});
