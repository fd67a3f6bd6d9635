"""Calls of the Python client libraries, unmodified, on the host in SOLVEGATE_URL. Called by record.

Their waits are shortened, and their fixed hosts are replaced where they open a connection. Pages, keys and pictures are made up.
"""

import base64
import os
import pathlib
import sys
import tempfile
import time
import traceback
import urllib.parse
import urllib.request

import requests

BASE = os.environ["SOLVEGATE_URL"]
KEY = os.environ["SOLVEGATE_KEY"]
SHOP = "https://shop.example.com/login"
OPEN = "https://open.example.com/login"
PROXY = "user:word@proxy.example.net:8080"
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
# 32 by 32 pixels and more than 100 bytes, because clients check both.
PICTURE = b"GIF89a\x20\0\x20\0" + b"a picture of words for the client libraries of other authors " * 2
ENCODED = base64.b64encode(PICTURE).decode()

# === the host and the clock ===

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(min(seconds, 0.2))

_request = requests.Session.request


def _moved(self, method, url, *args, **kwargs):
    parts = urllib.parse.urlsplit(url)
    base = urllib.parse.urlsplit(BASE)
    url = urllib.parse.urlunsplit((base.scheme, base.netloc, parts.path, parts.query, ""))
    return _request(self, method, url, *args, **kwargs)


requests.Session.request = _moved


def files(count=1):
    folder = pathlib.Path(tempfile.mkdtemp())
    paths = [folder / f"picture{n}.gif" for n in range(count)]
    for path in paths:
        path.write_bytes(PICTURE)
    return [str(path) for path in paths]


# === the libraries ===


def two_captcha():
    from twocaptcha import TwoCaptcha

    solver = TwoCaptcha(KEY, pollingInterval=1)
    json = TwoCaptcha(KEY, pollingInterval=1, extendedResponse=True)
    proxy = {"type": "HTTPS", "uri": PROXY}
    yield "balance", lambda: solver.balance()
    yield "report", lambda: solver.report(solver.normal(ENCODED)["captchaId"], True)
    yield "normal file", lambda: solver.normal(files()[0], numeric=4, minLen=4, maxLen=20, phrase=1, caseSensitive=1, calc=0, lang="en", hintText="Type red symbols only", header_acao=1)
    yield "normal base64 hint picture", lambda: solver.normal(ENCODED, hintImg=ENCODED)
    yield "normal file hint picture", lambda: solver.normal(files()[0], hintImg=files()[0])
    yield "text", lambda: solver.text("If tomorrow is Saturday, what day is today?", lang="en")
    yield "recaptcha v2", lambda: solver.recaptcha("6Le-wvkSAAAAAPBMRTvw0Q4Muexq9bi0DJwx_mJ-", SHOP, invisible=1, enterprise=0, proxy=proxy, datas="aB3_x", userAgent=AGENT, cookies="sid:1;lang:en", domain="www.google.com")
    yield "recaptcha v2 json", lambda: json.recaptcha("6Le-wvkSAAAAAPBMRTvw0Q4Muexq9bi0DJwx_mJ-", SHOP, enterprise=1, action="login")
    yield "recaptcha v3", lambda: solver.recaptcha("6Le-wvkSAAAAAPBMRTvw0Q4Muexq9bi0DJwx_mJ-", SHOP, version="v3", score=0.3, action="login", enterprise=1)
    yield "hcaptcha", lambda: solver.hcaptcha("13257c82-e129-4f09-a733-2a7cb3102832", SHOP, invisible=0, data="rqdata-1", proxy=proxy, userAgent=AGENT, domain="hcaptcha.com")
    yield "funcaptcha", lambda: solver.funcaptcha("69A21A01-CC7B-B9C6-0F9A-E7FA06677FFC", SHOP, surl="https://client-api.arkoselabs.com", proxy=proxy, userAgent=AGENT, **{"data[key]": "value"})
    yield "geetest", lambda: solver.geetest("f1ab2cdefa3456789012345b6c78d90e", "12345678abc90123d45678ef90123a456b", SHOP, apiServer="api-na.geetest.com", offline=0, new_captcha=1, proxy=proxy, userAgent=AGENT)
    yield "geetest_v4", lambda: solver.geetest_v4("e392e1d7fd421dc63325744d5a2b9c73", SHOP, proxy=proxy, userAgent=AGENT, challenge="c1", risk_type="slide")
    yield "turnstile", lambda: solver.turnstile("0x4AAAAAAAVrOwQWPlm3Bnr5", SHOP, data="foo", pagedata="3gAFo2l2", action="managed", useragent=AGENT, proxy=proxy)
    yield "grid", lambda: solver.grid(files()[0], hintText="Select cars", rows=3, cols=3, previousId=0, canSkip=0, lang="en", img_type="recaptcha")
    yield "grid base64", lambda: solver.grid(ENCODED, hintImg=ENCODED, minClicks=1, maxClicks=9)
    yield "canvas", lambda: solver.canvas(files()[0], hintText="Draw around apple", previousId=0, canSkip=0, lang="en")
    yield "coordinates", lambda: solver.coordinates(files()[0], hintText="Connect the dots", lang="en", min_clicks=1, max_clicks=3)
    yield "rotate", lambda: solver.rotate(files()[0], angle=40, lang="en", hintText="Put the images in the correct way")
    yield "rotate many", lambda: solver.rotate(files(3), angle=40)
    # Methods that a site opens.
    yield "audio", lambda: solver.audio(_mp3(), "en", url=OPEN)
    yield "keycaptcha", lambda: solver.keycaptcha("10", "493e52c37c10c2bcdf4a00cbc9ccd1e8", "9006dc725760858e4c0715b835472f22-pz-", "2ca3abe86d90c6142d5571db98af6714", OPEN, proxy=proxy)
    yield "capy", lambda: solver.capy("PUZZLE_Abc1dEFghIJKLM2no34P56q7rStu8v", OPEN, api_server="https://jp.api.capy.me/", version="puzzle", proxy=proxy)
    yield "lemin", lambda: solver.lemin("CROPPED_3dfdd5c_d1872b526b794d83ba3b365eb15a200b", "lemin-cropped-captcha", OPEN, api_server="api.leminnow.com", proxy=proxy)
    yield "atb_captcha", lambda: solver.atb_captcha("af25e409b33d722a95e56a230ff8771c", "https://cap.aisecurius.com", OPEN, proxy=proxy)
    yield "amazon_waf", lambda: solver.amazon_waf("AQIDAHjcYu/GjX+QlghicBg", "CgAFRjIw2vAAABSM", "zPT0jOl1rQlUNaldX6LUpn4D6Tl9bJ8VUQ", OPEN, challenge_script="https://41bcdd4fb3cb.610cd090.us-east-1.token.awswaf.com/challenge.js", captcha_script="https://41bcdd4fb3cb.610cd090.us-east-1.captcha.awswaf.com/captcha.js", proxy=proxy)
    yield "mtcaptcha", lambda: solver.mtcaptcha("MTPublic-KzqLY1cKH", OPEN, proxy=proxy)
    yield "friendly_captcha", lambda: solver.friendly_captcha("2FZFEVS1FZCGQ9", OPEN, version="v2", proxy=proxy)
    yield "tencent", lambda: solver.tencent("2092215077", OPEN, captcha_script="https://captcha.gtimg.com/TCaptcha.js", proxy=proxy)
    yield "cutcaptcha", lambda: solver.cutcaptcha("a1488b66da00bf332a1488993a5443c79047e752", "SAb83IIB", OPEN, proxy=proxy)
    yield "vkimage", lambda: solver.vkimage(ENCODED, "[5,4,7,7,14,22]", url=OPEN)
    yield "vkcaptcha", lambda: solver.vkcaptcha("https://open.example.com/not_robot_captcha?domain=vk", AGENT, proxy, url=OPEN)
    yield "captchafox", lambda: solver.captchafox("sk_ILKWNruBBVKDOM7dZs59KHnDLEWiH", OPEN, AGENT, proxy)
    yield "prosopo", lambda: solver.prosopo("5EZVvsHMrKCFKp5NYNoTyDjTjetoVo1Z4UNNb", OPEN, proxy=proxy)
    yield "temu", lambda: solver.temu(ENCODED, ENCODED, ENCODED, ENCODED, url=OPEN)
    yield "datadome", lambda: solver.datadome("https://geo.captcha-delivery.com/captcha/?initialCid=1&referer=https%3A%2F%2Fopen.example.com%2F", OPEN, AGENT, proxy)
    yield "cybersiara", lambda: solver.cybersiara("tpjOCKjjpdzv3d8Ub2E9COEWKt1vl1Mv", OPEN, AGENT, proxy=proxy)
    yield "yandex_smart", lambda: solver.yandex_smart("Y5Lh0tiycconMJGsFd3EbbuNKSp1yaZESUOIHfeV", OPEN, proxy=proxy, userAgent=AGENT)
    yield "altcha", lambda: solver.altcha(OPEN, challenge_url="https://open.example.com/captcha/challenge", proxy=proxy)


def _mp3():
    path = pathlib.Path(tempfile.mkdtemp()) / "question.mp3"
    path.write_bytes(b"ID3 an audio file of at least fifty bytes, made up for this test")
    return str(path)


def captchaai():
    from captchaai import CaptchaAI

    solver = CaptchaAI(KEY, base_url=BASE, max_retries=0)
    everywhere = CaptchaAI(KEY, base_url=BASE, max_retries=0, proxy=PROXY, proxytype="HTTP")
    proxy = {"proxy": PROXY, "proxytype": "HTTP"}
    browser = {"cookies": "sid=1; lang=en", "user_agent": AGENT}
    yield "threads_info", lambda: solver.threads_info()
    yield "normal", lambda: solver.normal(PICTURE, numeric=4, min_len=1, max_len=20, phrase=0, case_sensitive=1, lang="en", instructions="the red letters")
    yield "normal with the client's proxy", lambda: everywhere.normal(ENCODED)
    yield "grid", lambda: solver.grid(PICTURE, "crosswalks", "3x3")
    yield "bls", lambda: solver.bls([PICTURE] * 9, "664")
    yield "bls with the client's proxy", lambda: everywhere.bls([PICTURE] * 9, "664")
    yield "recaptcha_v2", lambda: solver.recaptcha_v2("6Le-wvkSAAAAAPBM", SHOP, **proxy, **browser)
    yield "recaptcha_v2 invisible", lambda: solver.recaptcha_v2("6Le-wvkSAAAAAPBM", SHOP, invisible=True)
    yield "recaptcha_v2 enterprise", lambda: solver.recaptcha_v2("6Le-wvkSAAAAAPBM", SHOP, enterprise=True, action="login")
    yield "recaptcha_v3", lambda: solver.recaptcha_v3("6Le-wvkSAAAAAPBM", SHOP, action="login", min_score=0.3, **browser)
    yield "recaptcha_v3 enterprise", lambda: solver.recaptcha_v3("6Le-wvkSAAAAAPBM", SHOP, action="login", enterprise=True)
    yield "turnstile", lambda: solver.turnstile("0x4AAAAAAAVrOwQWPlm3Bnr5", SHOP, **proxy, **browser)
    yield "cloudflare_challenge", lambda: solver.cloudflare_challenge(SHOP, **proxy, **browser)
    yield "geetest", lambda: solver.geetest("f1ab2cdefa3456789012345b6c78d90e", "12345678abc90123d45678ef90123a456b", SHOP, **proxy, **browser)
    yield "captchafox", lambda: solver.captchafox("sk_ILKWNruBBVKDOM7dZs59KHnDLEWiH", OPEN, **proxy, **browser)
    yield "friendly_captcha", lambda: solver.friendly_captcha("2FZFEVS1FZCGQ9", OPEN, version="v2")
    yield "lemin", lambda: solver.lemin("CROPPED_3dfdd5c_d1872b", "lemin-cropped-captcha", OPEN, api_server="api.leminnow.com")


def captchaai_0():
    from captchaai import CaptchaAI

    solver = CaptchaAI(KEY, pollingInterval=1)
    proxy = {"type": "HTTPS", "uri": PROXY}
    yield "balance", lambda: solver.balance()
    yield "normal file", lambda: solver.normal(files()[0], numeric=1, minLen=1, maxLen=20, phrase=0, caseSensitive=0, calc=0, lang="en", hintText="the red letters")
    yield "normal base64", lambda: solver.normal(ENCODED)
    yield "recaptcha v2", lambda: solver.recaptcha("6Le-wvkSAAAAAPBM", SHOP, invisible=1, proxy=proxy)
    yield "recaptcha v3", lambda: solver.recaptcha("6Le-wvkSAAAAAPBM", SHOP, version="v3", action="login", score=0.3)
    yield "hcaptcha", lambda: solver.hcaptcha("13257c82-e129-4f09-a733-2a7cb3102832", SHOP, proxy=proxy)


def unicaps():
    from unicaps import CaptchaSolver, CaptchaSolvingService, proxy
    from unicaps.common import CaptchaAlphabet, CaptchaCharType, WorkerLanguage

    solver = CaptchaSolver(CaptchaSolvingService.TWOCAPTCHA, KEY)
    type(solver._service).BASE_URL = BASE
    for settings in solver._service.settings.values():
        settings.polling_delay, settings.polling_interval = 1, 1
    browser = {"proxy": proxy.ProxyServer(f"http://{PROXY}"), "user_agent": AGENT, "cookies": {"sid": "1"}}
    yield "get_balance", lambda: solver.get_balance()
    yield "image", lambda: solver.solve_image_captcha(_picture(), char_type=CaptchaCharType.ALPHANUMERIC, is_phrase=False, is_case_sensitive=True, is_math=False, min_len=4, max_len=6, alphabet=CaptchaAlphabet.LATIN, language=WorkerLanguage.ENGLISH, comment="the red letters")
    yield "text", lambda: solver.solve_text_captcha("What is 2+2?", alphabet=CaptchaAlphabet.LATIN, language=WorkerLanguage.ENGLISH)
    yield "recaptcha_v2", lambda: solver.solve_recaptcha_v2("6Le-wvkSAAAAAPBM", SHOP, is_invisible=True, is_enterprise=True, data_s="aB3_x", api_domain="recaptcha.net", **browser)
    yield "recaptcha_v3", lambda: solver.solve_recaptcha_v3("6Le-wvkSAAAAAPBM", SHOP, is_enterprise=True, action="login", min_score=0.7, api_domain="google.com")
    yield "hcaptcha", lambda: solver.solve_hcaptcha("13257c82-e129-4f09-a733-2a7cb3102832", SHOP, api_domain="hcaptcha.com", **browser)
    yield "funcaptcha", lambda: solver.solve_funcaptcha("69A21A01-CC7B-B9C6-0F9A-E7FA06677FFC", SHOP, service_url="client-api.arkoselabs.com", no_js=True, blob="value", **browser)
    yield "geetest", lambda: solver.solve_geetest(SHOP, "f1ab2cdefa3456789012345b6c78d90e", "12345678abc90123d45678ef90123a456b", api_server="api-na.geetest.com", **browser)
    yield "geetest_v4", lambda: solver.solve_geetest_v4(SHOP, "e392e1d7fd421dc63325744d5a2b9c73", **browser)
    yield "keycaptcha", lambda: solver.solve_keycaptcha(OPEN, "10", "493e52c37c10c2bcdf4a00cbc9ccd1e8", "9006dc725760858e", "2ca3abe86d90c614")
    yield "capy", lambda: solver.solve_capy_puzzle("PUZZLE_Abc1dEFghIJKLM2no34P56q7rStu8v", OPEN, api_server="https://jp.api.capy.me/")


def _picture():
    path = pathlib.Path(files()[0])
    return path


def captcha_solver():
    from captcha_solver import CaptchaSolver

    solver = CaptchaSolver("2captcha", api_key=KEY, service_url=BASE)
    yield "image", lambda: solver.solve_captcha(PICTURE, recognition_delay=1)
    yield "image options", lambda: solver.solve_captcha(PICTURE, recognition_delay=1, phrase=1, regsense=1, numeric=1, min_len=2, is_russian=0)


def captchatools():
    import captchatools

    def harvester(site, **more):
        return captchatools.new_harvester(solving_site=site, api_key=KEY, sitekey="6Le-wvkSAAAAAPBM", captcha_url=SHOP, **more)

    proxied = {"proxy": PROXY, "proxy_type": "HTTP", "user_agent": AGENT}
    for site in ("2captcha", "captchaai"):
        yield f"balance {site}", lambda: harvester(site).get_balance()
        yield f"v2 {site}", lambda: harvester(site, invisible_captcha=True).get_token(**proxied)
        yield f"v3 {site}", lambda: harvester(site, captcha_type="v3", action="login", min_score=0.7).get_token(**proxied)
        yield f"hcaptcha {site}", lambda: harvester(site, captcha_type="hcap").get_token(rq_data="rqdata-1", **proxied)
        yield f"image {site}", lambda: harvester(site, captcha_type="image").get_token(b64_img=ENCODED)
        yield f"image with a proxy {site}", lambda: harvester(site, captcha_type="image").get_token(b64_img=ENCODED, **proxied)


LIBRARIES = {
    "2captcha-python": two_captcha,
    "captchaai": captchaai,
    "captchaai-0": captchaai_0,
    "unicaps": unicaps,
    "captcha-solver": captcha_solver,
    "captchatools": captchatools,
}


def main():
    failed = 0
    for case, call in LIBRARIES[sys.argv[1]]():
        urllib.request.urlopen(f"{BASE}/-/case?{urllib.parse.urlencode({'name': case})}").read()
        try:
            answer = call()
            print(f"{case}: {str(answer)[:90]}")
        except Exception as error:  # noqa: BLE001, the libraries raise what they like
            failed += 1
            print(f"{case}: FAILED {type(error).__name__}: {error}")
            if os.environ.get("SOLVEGATE_TRACE"):
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
