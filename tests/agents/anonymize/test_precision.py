"""Text without personal data is unchanged: clauses, dates, money, statutes, code and web addresses."""

from agents.anonymize import Anonymizer
from tests.table import every_row

CLAUSES = """12.3.4 The Supplier shall deliver the Goods.
12.3.4.1 The Supplier shall deliver the Goods.
see clause 12.3.4.1 and clauses 4.1.2.3 and 4.1.2.4
Sections 1.2.3.4, 1.2.3.5 or 1.2.3.6 apply.
§ 4.1.2.3 of the Act
as set out in Section 14 of this Agreement
Clause 7(a)(ii) survives termination.
Schedule 3, Part B, paragraph 2.1
Article 28 GDPR; Art. 6(1)(f) DSGVO
§§ 305-310 BGB, § 433 Abs. 1 Satz 2
Companies Act 2006, s 172(1)
15 U.S.C. § 78j(b); 17 C.F.R. § 240.10b-5
Regulation (EU) 2016/679 of 27 April 2016
Directive 95/46/EC
Brown v Board of Education, 347 U.S. 483 (1954)
Donoghue v Stevenson [1932] AC 562
Rs. C-311/18 und C-362/14
BGH, Urteil vom 12.03.2020 - IX ZR 125/17
No. 18-1234, 2020 WL 123456
Annex AB and Table SE
Exhibit A to the Master Services Agreement
a Private Limited Company
the Public Limited Company
The Company is Limited by guarantee.
liability is Limited to direct loss
A company limited by shares
the Customer, the Supplier and the Parties
The Attorney General may intervene.
Attorney Fees and Attorney General Opinions
Dear Sir or Madam,
Dear Sir,
Dear Sirs,
M. Payment terms apply as follows.
Sr. Partner wanted; Sr. Engineer preferred
L. Definitions"""
DATES = """on 12 March 2024 and 3 May 2025
2024-03-12 to 2024-03-31
12.03.2024, 1.2.24 and 01.02.2024
01.02.2024 - 03.04.2024
01/02/2024 or 01-02-2024
01 02 2024
2024-03-12T10:15:30+01:00
2024-03-12T10:15:30.123456Z
Thu, 01 Jan 1970 00:00:00 +0000
20240312101530
10:15:30 on 09.10.2023
09.03.2024 14.30 Uhr
05.06.24 10.30
from 01.01.2024 to 31.12.2024
Q3 2024, FY2023/24, KW 12/2024
1700000000 and 1700000000000
born in 1984, aged 39
within 30 (thirty) days, 14 working days
every 15 minutes; 24/7; 9-5
2001-02-03 04:05:06"""
MONEY = """EUR 1,000,000.00
EUR 1.000.000,00 and 1 000 000 EUR
$1,250,000 plus 20%
USD 12500000
a fee of 0.5% p.a. above base
GBP 07 500 000
+25 000 000 EUR
+1,234,567 in revenue
12500 € net, 14875 € gross
the sum of 500000 dollars
account balance: EUR 500000
the account shows a total of 1250000
account fees of 250.000,00
interest at 3.25 per cent
1.5x multiple, 2.0x, 10x
CHF 1'250'000.00
£1.2m, $3bn, 5k
20,000 units at 4.99 each
-500000 and (500000)
0.0125 BTC"""
CODE = """for i in range(10): print(i)
import os, sys; x = a[0:10]
def f(x: int) -> str: ...
std::vector<int> a; face::add(b)
dead::beef
a::b::c
x = 0x7fffffff + 1234567
if (a > 0 && b < 10) { return; }
SELECT * FROM t WHERE id = 1234567 LIMIT 10
@app.route("/users/<id>")
@pytest.mark.parametrize
npm install lodash@4.17.21 react@18.3.0-rc.1
uses: actions/checkout@v4.1.7
git clone git@github.com:org/repo.git
pip install django==5.2.1 "httpx>=0.28,<0.29"
version 1.2.3.4 and v1.2.3.4 and release 10.20.30.40
Version: 2.10.0-beta.3+build.512
Python 3.11.7, PostgreSQL 16.2, OpenSSL 3.0.13
Chrome/124.0.6367.91 Safari/537.36
127.0.0.1:8000 and 0.0.0.0 and ::1 and ::
netmask 255.255.255.0
550e8400-e29b-41d4-a716-446655440000
12345678-1234-1234-1234-123456789012
d41d8cd98f00b204e9800998ecf8427e
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
sha256:0123456789abcdef0123456789abcdef
ab:cd:ef:01:23:45:67:89:ab:cd:ef:01:23:45:67:89
00:1A:2B:3C:4D:5E
commit 1234567, 9fceb02
abcdefghijklmnopqrstuvwxyz0123456789
0123456789
1234567890123456
4111111111111112
0x4111111111111111
id=4111111111111111x
3.14159265358979
6.02214076e23
1234567.89 9876543.21
{"a": 1, "b": [1, 2, 3], "c": null}
C:\\new\\table.txt
\\d{3}-\\d{4}
[0-9]{13,19}
a@b
foo@bar
user at example dot com
@mention and #tag
x+1234567
MS Office, MS Word, DR plan, MX record
weighs 25 KG, 30 AB
Blood group AB"""
WEB = """https://example.com/path?id=12345678
http://example.com:8080/a/b/01-2345-6789
https://shop.example/item/4111111111111111
https://example.com/020-7946-0958/x
ftp://files.example.org/pub/2024/01/02
www.example.com and example.org
see https://example.com/a_(b)#c.
https://example.com/Smith/Jones
wss://stream.example/v1"""
PROSE = """The quick brown fox jumps over the lazy dog.
We met on Monday and agreed on nothing.
Der Vertrag wird in zwei Ausfertigungen unterzeichnet.
Le présent contrat est conclu pour une durée de trois ans.
El presente contrato se rige por la ley española.
Il presente accordo ha durata triennale.
本契約は日本法に準拠する。
Договор вступает в силу сегодня.
Room 12, Floor 3, Building 7
Chapter 1 page 23 line 45
Score 12-34-56, ratio 3:2:1
Flight 1234, Gate 56, Seat 7A
ISBN 978-3-16-148410-0
ISO 9001:2015, DIN 5008, RFC 2822
Win 11 and 4K and 5G
5'10\", 6ft 2in, 20 °C, 100 km/h
48.137154, 11.576124
the account manager and the account holder
your account is closed
tax, passport and phone
Please call us. Tel.
mobile first, phone calls
ein Konto bei einer Bank
1. First item
2) Second item
(a) third; (b) fourth
- bullet; * star
A, B and C
Limited edition
Inc. and Ltd. are suffixes
the Holdings of the fund
Judge for yourself
Sir, yes sir
in the Hon. tradition
miss the deadline
a dr. and a prof. walk in
THE PARTIES AGREE AS FOLLOWS
IN WITNESS WHEREOF
NOTWITHSTANDING SECTION 12
Total: 123 456 pieces
p. 12, pp. 13-15, vol. 3
PERSON_1 and ORG_2 are not ours
[PERSON_1], <ORG_2>, {{EMAIL_3}}
x7k and PERSON_1_q0q0"""
LINES = [line for block in (CLAUSES, DATES, MONEY, CODE, WEB, PROSE) for line in block.split("\n")]


def test_the_corpus_is_large_enough():
    assert len(LINES) >= 150
    assert len(set(LINES)) == len(LINES)


@every_row("line", LINES)
def test_clean_text_is_unchanged(line):
    assert Anonymizer().hide(line) == line


def test_clean_lines_stay_unchanged_together():
    text = "\n".join(LINES)
    assert Anonymizer().hide(text) == text


def test_listed_parties_leave_clean_text_unchanged():
    parties = ["Anna Müller", "Northwind Traders Ltd", "Will Young", "Max Park", "王小明"]
    text = "\n".join(LINES)
    assert Anonymizer(parties).hide(text) == text
