// Calls of the npm client libraries, unmodified, on the host in SOLVEGATE_URL. Called by record.
//
// Their waits are shortened, and their fixed hosts are replaced where they open a connection. Pages, keys and pictures are made up.
"use strict";

const http = require("http");
const https = require("https");
const { createRequire } = require("module");
const path = require("path");

const BASE = new URL(process.env.SOLVEGATE_URL);
const KEY = process.env.SOLVEGATE_KEY;
const SHOP = "https://shop.example.com/login";
const OPEN = "https://open.example.com/login";
const PROXY = "user:word@proxy.example.net:8080";
const AGENT =
  "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
const ENCODED = Buffer.from(
  "GIF89a\x20\0\x20\0" + "a picture of words for the client libraries of other authors ".repeat(2),
).toString("base64");

const load = createRequire(path.join(process.env.SOLVEGATE_NODE_MODULES, "x.js"));

// === the host and the clock ===

const later = setTimeout;
globalThis.setTimeout = (call, ms, ...more) => later(call, ms < 30000 ? Math.min(ms, 200) : ms, ...more);
const repeat = setInterval;
globalThis.setInterval = (call, ms, ...more) => repeat(call, Math.min(ms, 200), ...more);

const direct = http.request;
const moved = (given, ...more) => {
  const options = given instanceof URL ? require("url").urlToHttpOptions(given) : { ...given };
  for (const name of ["href", "agent", "agents", "servername", "host", "hostname", "port", "protocol", "headers"]) {
    if (name !== "headers") delete options[name];
  }
  if (options.headers) {
    for (const name of Object.keys(options.headers)) {
      if (name.toLowerCase() === "host") delete options.headers[name];
    }
  }
  return direct({ ...options, protocol: "http:", hostname: BASE.hostname, port: BASE.port }, ...more);
};
http.request = moved;
https.request = moved;
http.get = (...all) => { const request = moved(...all); request.end(); return request; };
https.get = http.get;

const proxied = { proxy: PROXY, proxytype: "HTTP", userAgent: AGENT };
const recaptcha = "6Le-wvkSAAAAAPBMRTvw0Q4Muexq9bi0DJwx_mJ-";
const gt = { gt: "f1ab2cdefa3456789012345b6c78d90e", challenge: "12345678abc90123d45678ef90123a456b" };

// === the libraries ===

const libraries = {
  "@2captcha/captcha-solver"() {
    const { Solver } = load("@2captcha/captcha-solver");
    const solver = new Solver(KEY, 200);
    const page = { pageurl: OPEN };
    return [
      ["balance", () => solver.balance()],
      ["report", async () => solver.goodReport((await solver.imageCaptcha({ body: ENCODED })).id)],
      ["recaptcha v2", () => solver.recaptcha({ pageurl: SHOP, googlekey: recaptcha, invisible: 1, datas: "aB3_x", domain: "google.com", cookies: "sid:1;", enterprise: 0, ...proxied })],
      ["recaptcha v3", () => solver.recaptcha({ pageurl: SHOP, googlekey: recaptcha, version: "v3", action: "login", min_score: 0.3, enterprise: 1 })],
      ["hcaptcha", () => solver.hcaptcha({ pageurl: SHOP, sitekey: "13257c82-e129-4f09-a733-2a7cb3102832", invisible: 0, data: "rqdata-1", domain: "hcaptcha.com", ...proxied })],
      ["geetest", () => solver.geetest({ pageurl: SHOP, ...gt, api_server: "api-na.geetest.com", offline: 0, new_captcha: true, ...proxied })],
      ["geetestV4", () => solver.geetestV4({ pageurl: SHOP, captcha_id: "e392e1d7fd421dc63325744d5a2b9c73", risk_type: "slide", ...proxied })],
      ["imageCaptcha", () => solver.imageCaptcha({ body: ENCODED, phrase: 0, regsense: 1, numeric: 4, calc: 0, min_len: 4, max_len: 6, language: 2, lang: "en", textinstructions: "the red letters" })],
      ["funCaptcha", () => solver.funCaptcha({ pageurl: SHOP, publickey: "69A21A01-CC7B-B9C6-0F9A-E7FA06677FFC", surl: "https://client-api.arkoselabs.com", data: '{"blob":"value"}', ...proxied })],
      ["turnstile", () => solver.cloudflareTurnstile({ pageurl: SHOP, sitekey: "0x4AAAAAAAVrOwQWPlm3Bnr5", action: "managed", data: "80001aa1affffc21", proxy: PROXY, proxytype: "HTTP" })],
      ["coordinates", () => solver.coordinates({ body: ENCODED, language: 2, lang: "en", textinstructions: "the apple" })],
      ["grid", () => solver.grid({ body: ENCODED, recaptcha: 1, rows: 3, cols: 3, minClicks: 1, maxClicks: 9, previousId: "0", imgType: "recaptcha", canSkip: 0, lang: "en", textinstructions: "cars" })],
      ["canvas", () => solver.canvas({ body: ENCODED, recaptcha: 1, canvas: 1, canSkip: 0, lang: "en", textinstructions: "Draw around apple" })],
      ["textcaptcha", () => solver.text({ textcaptcha: "What is 2+2?", lang: "en" })],
      ["rotate", () => solver.rotate({ body: ENCODED, angle: 45, lang: "en", textinstructions: "upright" })],
      ["yandexSmart", () => solver.yandexSmart({ ...page, sitekey: "Y5Lh0tiycconMJGsFd3EbbuNKSp1yaZESUOIHfeV", ...proxied })],
      ["lemin", () => solver.lemin({ ...page, captcha_id: "CROPPED_3dfdd5c_d1872b526b794d83", div_id: "lemin-cropped-captcha", api_server: "api.leminnow.com" })],
      ["amazonWaf", () => solver.amazonWaf({ ...page, sitekey: "AQIDAHjcYu/GjX+QlghicBg", iv: "CgAFRjIw2vAAABSM", context: "zPT0jOl1rQlUNaldX6LUpn4D6Tl9bJ8VUQ", challenge_script: "https://41bcdd4fb3cb.610cd090.us-east-1.token.awswaf.com/challenge.js" })],
      ["capyPuzzle", () => solver.capyPuzzle({ ...page, captchakey: "PUZZLE_Cme4hZLjuZRMYC3uh14C52D3uNms5w", api_server: "https://jp.api.capy.me/", version: "puzzle" })],
      ["dataDome", () => solver.dataDome({ ...page, captcha_url: "https://geo.captcha-delivery.com/captcha/?initialCid=1&referer=https%3A%2F%2Fopen.example.com%2F", ...proxied })],
      ["cyberSiARA", () => solver.cyberSiARA({ ...page, master_url_id: "tpjOCKjjpdzv3d8Ub2E9COEWKt1vl1Mv", userAgent: AGENT })],
      ["mtCaptcha", () => solver.mtCaptcha({ ...page, sitekey: "MTPublic-KzqLY1cKH", ...proxied })],
      ["cutCaptcha", () => solver.cutCaptcha({ ...page, miseryKey: "a1488b66da00bf332a1488993a5443c79047e752", apiKey: "SAb83IIB" })],
      ["friendlyCaptcha", () => solver.friendlyCaptcha({ ...page, sitekey: "2FZFEVS1FZCGQ9" })],
      ["boundingBox", () => solver.boundingBox({ ...page, image: ENCODED, textinstructions: "the apple" })],
      ["keyCaptcha", () => solver.keyCaptcha({ ...page, userId: "10", sessionId: "493e52c37c10c2bc", webServerSign: "9006dc725760858e", webServerSign2: "2ca3abe86d90c614" })],
      ["tencent", () => solver.tencent({ ...page, appId: "2092215077" })],
      ["atbCaptcha", () => solver.atbCaptcha({ ...page, appId: "af25e409b33d722a95e56a230ff8771c", apiServer: "https://cap.aisecurius.com" })],
      ["prosopo", () => solver.prosopo({ ...page, sitekey: "5EZVvsHMrKCFKp5NYNoTyDjTjetoVo1Z4UNNb" })],
      ["captchaFox", () => solver.captchaFox({ ...page, sitekey: "sk_ILKWNruBBVKDOM7dZs59KHnDLEWiH", ...proxied })],
      ["vkImage", () => solver.vkimage({ ...page, body: ENCODED, steps: "[5,4,7,7,14,22]" })],
      ["vkCaptcha", () => solver.vkcaptcha({ ...page, redirect_uri: "https://open.example.com/not_robot_captcha?domain=vk", ...proxied })],
      ["temu", () => solver.temu({ ...page, body: ENCODED, part1: ENCODED, part2: ENCODED, part3: ENCODED })],
      ["altcha", () => solver.altcha({ ...page, challengeUrl: "https://open.example.com/captcha/challenge" })],
      ["audio", () => solver.audio({ ...page, body: ENCODED, lang: "en" })],
    ];
  },
  "2captcha"() {
    const { Solver } = load("2captcha");
    const solver = new Solver(KEY, 200);
    return [
      ["balance", () => solver.balance()],
      ["report", async () => solver.goodReport((await solver.imageCaptcha(ENCODED)).id)],
      ["recaptcha v2", () => solver.recaptcha(recaptcha, SHOP, { invisible: true, "data-s": "aB3_x", ...proxied })],
      ["recaptcha v3", () => solver.recaptcha(recaptcha, SHOP, { version: "v3", action: "login", min_score: 0.3 })],
      ["hcaptcha", () => solver.hcaptcha("13257c82-e129-4f09-a733-2a7cb3102832", SHOP, { data: "rqdata-1", userAgent: AGENT })],
      ["geetest", () => solver.geetest(gt.gt, gt.challenge, SHOP, { api_server: "api.geetest.com", offline: 0, new_captcha: 1 })],
      ["imageCaptcha", () => solver.imageCaptcha(ENCODED, { phrase: 0, regsense: 1, numeric: 4, min_len: 4, max_len: 6, lang: "en", textinstructions: "the red letters" })],
      ["funCaptcha", () => solver.funCaptcha("69A21A01-CC7B-B9C6-0F9A-E7FA06677FFC", SHOP, "https://client-api.arkoselabs.com", { userAgent: AGENT })],
      ["turnstile", () => solver.turnstile("0x4AAAAAAAVrOwQWPlm3Bnr5", SHOP, { action: "managed", data: "80001aa1affffc21", pagedata: "3gAFo2l2", userAgent: AGENT })],
    ];
  },
  "@infosimples/node_two_captcha"() {
    const Client = load("@infosimples/node_two_captcha");
    const solver = new Client(KEY, { timeout: 60000, polling: 200, throwErrors: true });
    return [
      ["balance", () => solver.balance()],
      ["report", async () => solver.report((await solver.decode({ base64: ENCODED })).id)],
      ["decode", () => solver.decode({ base64: ENCODED, numeric: 1, minLength: 4, maxLength: 6, phrase: 0 })],
      ["decodeRecaptchaV2", () => solver.decodeRecaptchaV2({ googlekey: recaptcha, pageurl: SHOP, invisible: true, enterprise: true })],
      ["decodeRecaptchaV3", () => solver.decodeRecaptchaV3({ googlekey: recaptcha, pageurl: SHOP, action: "login" })],
      ["decodeHCaptcha", () => solver.decodeHCaptcha({ sitekey: "13257c82-e129-4f09-a733-2a7cb3102832", pageurl: SHOP, invisible: true })],
    ];
  },
  "rucaptcha-2captcha"() {
    const make = load("rucaptcha-2captcha").default;
    const solver = make(KEY, 2);
    const solve = async (parts) => solver.get(await solver.send(parts));
    return [
      ["getBalance", () => solver.getBalance()],
      ["reportGood", async () => { const id = await solver.send({ method: "base64", body: ENCODED }); await solver.getWithPrice(id); return solver.reportGood(id); }],
      ["image", () => solve({ method: "base64", body: ENCODED, phrase: 0, regsense: 1, numeric: 4, min_len: 4, max_len: 6, lang: "en", textinstructions: "the red letters" })],
      ["text", () => solve({ textcaptcha: "What is 2+2?", lang: "en" })],
      ["recaptcha v2", () => solve({ method: "userrecaptcha", googlekey: recaptcha, pageurl: SHOP, invisible: 1, ...proxied })],
      ["recaptcha v3", () => solve({ method: "userrecaptcha", version: "v3", googlekey: recaptcha, pageurl: SHOP, action: "login", min_score: 0.3 })],
      ["hcaptcha", () => solve({ method: "hcaptcha", sitekey: "13257c82-e129-4f09-a733-2a7cb3102832", pageurl: SHOP })],
      ["funcaptcha", () => solve({ method: "funcaptcha", publickey: "69A21A01-CC7B-B9C6-0F9A-E7FA06677FFC", pageurl: SHOP, surl: "https://client-api.arkoselabs.com", nojs: 0, "data[blob]": "value" })],
      ["grid", () => solve({ method: "base64", body: ENCODED, recaptcha: 1, recaptcharows: 3, recaptchacols: 3, img_type: "recaptcha", textinstructions: "cars", can_no_answer: 0 })],
      ["coordinates", () => solve({ method: "base64", body: ENCODED, coordinatescaptcha: 1, textinstructions: "the apple" })],
      ["rotate", () => solve({ method: "rotatecaptcha", body: ENCODED, angle: 40 })],
    ];
  },
  "2captcha-node"() {
    const make = load("2captcha-node");
    const solver = (make.CaptchaSolver || make.captchaSolver || make.default || make)(KEY);
    return [["solve", () => solver.solve({ image: ENCODED })]];
  },
  "puppeteer-extra-plugin-recaptcha"() {
    const { getSolutions } = load("puppeteer-extra-plugin-recaptcha/dist/provider/2captcha.js");
    process.env["2CAPTCHA_PROXY_TYPE"] = "http";
    process.env["2CAPTCHA_PROXY_ADDRESS"] = PROXY;
    const solve = async (captcha) => {
      const { solutions, error } = await getSolutions([{ id: "1", url: SHOP, ...captcha }], KEY, { useEnterpriseFlag: true });
      if (error) throw new Error(JSON.stringify(error));
      return solutions[0].text;
    };
    return [
      ["recaptcha", () => solve({ _vendor: "recaptcha", sitekey: recaptcha, s: "aB3_x", action: "login", isEnterprise: true })],
      ["hcaptcha", () => solve({ _vendor: "hcaptcha", sitekey: "13257c82-e129-4f09-a733-2a7cb3102832" })],
    ];
  },
};

async function main() {
  let failed = 0;
  for (const [name, call] of libraries[process.argv[2]]()) {
    await new Promise((done) => http.get({ path: `/-/case?${new URLSearchParams({ name })}` }, (r) => { r.resume(); r.on("end", done); }));
    try {
      const answer = await call();
      console.log(`${name}: ${JSON.stringify(answer)?.slice(0, 90)}`);
    } catch (error) {
      failed += 1;
      console.log(`${name}: FAILED ${error.name}: ${error.message}`);
      if (process.env.SOLVEGATE_TRACE) console.log(error.stack);
    }
  }
  process.exit(failed ? 1 : 0);
}

main();
